from __future__ import annotations

from pathlib import Path

import pytest

from attent.benchmark.report import Report
from attent.comparison import parts
from attent.comparison.results import ModelComparison
from attent.comparison.trainings import Options

MACHINE = {"processor": "one", "threads": 1, "python": "3", "torch": "2"}


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
