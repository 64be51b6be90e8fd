from __future__ import annotations

from pathlib import Path

import pytest

from attent.experiments import compare_scores
from attent.experiments.report import ModelComparison, Report
from attent.experiments.trainings import Options

MACHINE = {"processor": "one", "threads": 1, "python": "3", "torch": "2"}


def test_bad_input_is_one_line(attent, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for arguments, line in (
        (("length", "--models", "rnn"), "attent: unknown model 'rnn'"),
        (("scores", "--scores", "local"), "attent: unknown score 'local'"),
        (("length", "--out", tmp_path), f"attent: {tmp_path} holds something else than a comparison"),
        (("why", "--minutes", "0"), "attent: --minutes must be > 0, got 0"),
        (("how",), "attent: No such command 'how'"),
    ):
        done = attent("compare", *arguments)
        assert done.code == 2
        assert len(done.err) == 1
        assert done.err[0].startswith(line)
        assert not done.out
    done = attent("compare", "length", "--out", tmp_path / "new", "--data", tmp_path)
    assert (done.code, len(done.err)) == (2, 1)
    assert "is no folder of Multi30k" in done.err[0]


def test_the_table_is_printed_and_kept_and_copied(attent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Options] = []

    def compare(options: Options, *, say) -> ModelComparison:
        asked.append(options)
        return ModelComparison("scores", Report("Scores", MACHINE, []), [])

    monkeypatch.setattr(compare_scores, "compare", compare)
    out, copy = tmp_path / "out", tmp_path / "copy"
    done = attent("compare", "scores", "--scores", "dot, local-m", "--minutes", "0.5", "--out", out, "--copy", copy)
    assert done.code == 0
    assert asked == [Options(out, minutes=0.5, scores=["dot", "local-m"])]
    assert done.out[0] == "## Scores"
    assert {path.name for path in out.iterdir()} == {path.name for path in copy.iterdir()} == {"scores.md", "scores.json"}
