from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from attent.benchmark.report import Report
from attent.comparison import parts
from attent.comparison.results import ModelComparison
from attent.comparison.trainings import Options

MACHINE = {"processor": "one", "threads": 1, "python": "3", "torch": "2"}


def test_runs_that_are_trained_are_compared(attent, run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "source.txt").write_text("en | 3/3/26\nen | 1/1/2001\n", encoding="utf-8")
    (tmp_path / "target.txt").write_text("2026-03-03\n2001-01-01\n", encoding="utf-8")
    copy, out = Path(shutil.copytree(run_folder, tmp_path / "copy")), tmp_path / "out"
    files = ("--source", tmp_path / "source.txt", "--target", tmp_path / "target.txt", "--out", out)
    done = attent("compare", "runs", run_folder, copy, *files, "--beam", 2)
    assert done.code == 0
    assert done.out[0] == "## Runs"
    assert [line.split(" | ")[0] for line in done.out if line.startswith(f"| {tmp_path.root}")] == [
        f"| {run_folder}",
        f"| {copy}",
    ]
    assert {"runs.md", "runs.json"} <= {path.name for path in out.iterdir()}
    assert "tok:13a" in (out / "runs.json").read_text(encoding="utf-8")
    assert attent("compare", "runs", run_folder, copy, *files, "--target-language", "zh").code == 0
    assert "tok:zh" in (out / "runs.json").read_text(encoding="utf-8")


def test_the_table_is_printed_and_kept(attent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[Options, str]] = []

    def compare(options: Options, slot: str, *, say) -> ModelComparison:
        requests.append((options, slot))
        return ModelComparison("scores", Report("Scores", MACHINE, []), [])

    monkeypatch.setattr(parts, "compare", compare)
    out = tmp_path / "out"
    done = attent("compare", "scores", "--scores", "dot, local-m", "--minutes", "0.5", "--out", out)
    assert done.code == 0
    assert requests == [(Options(out, minutes=0.5, parts=["dot", "local-m"]), "scores")]
    assert done.out[0] == "## Scores"
    command = f"`attent compare scores --scores 'dot, local-m' --minutes 0.5 --out {out}`"
    assert command in done.out
    assert command in (out / "scores.md").read_text(encoding="utf-8").splitlines()
    assert {path.name for path in out.iterdir()} == {"scores.md", "scores.json"}
