from __future__ import annotations

import json
from pathlib import Path

from attent.cli.evaluate import lines


def test_the_results_are_those_of_the_run_itself(attent, run_folder: Path) -> None:
    done = attent("evaluate", run_folder, "--json")
    assert done.code == 0
    results = json.loads("\n".join(done.out))
    assert list(results) == ["held-out dates", "held-out combinations"]
    assert results == json.loads((run_folder / "config.json").read_text(encoding="utf-8"))["results"]


def test_for_a_person_there_is_a_line_for_each_test_set(attent, run_folder: Path) -> None:
    done = attent("evaluate", run_folder)
    assert [line.split("  ")[0] for line in done.out] == ["held-out dates", "held-out combinations"]
    assert all("(8 pairs)" in line for line in done.out)


def test_numbers_stand_below_each_other() -> None:
    one = {"pairs": 1000, "exact_match": 99.96, "year_alignment": 7.0}
    assert lines({"a": one, "longer": one}) == [
        "a       exact match 100.0 %  year alignment   7.0 %  (1,000 pairs)",
        "longer  exact match 100.0 %  year alignment   7.0 %  (1,000 pairs)",
    ]


def test_a_run_without_a_corpus_that_can_be_made_again(attent, run_folder: Path, tmp_path: Path) -> None:
    for file in run_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8")) | {"corpus": {}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    done = attent("evaluate", tmp_path)
    assert done.code == 2
    assert "corpus that can be made again" in done.err[0]
