from __future__ import annotations

import pytest

from attent.experiments.comparing import speed, why
from attent.experiments.comparing.why import compare


def test_all_four_answers(options, silent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "WIDTHS", (8, 16))
    monkeypatch.setattr(why, "HEADS", (1, 2))
    whole = speed.measure
    monkeypatch.setattr(speed, "measure", lambda: whole((4, 8), rounds=1, seconds=0.0, tokens=16))
    said: list[str] = []
    found = compare(options(), say=said.append, progress=silent)
    assert said[0].startswith("6 trainings")
    gradients, times, scales, heads = found.report.tables
    assert gradients.rows[0].keys() == {"x", "tanh RNN", "GRU", "LSTM", "LSTM, forget bias 1", "attention, causal"}
    assert [row["x"] for row in times.rows] == ["4", "8"]
    assert [(row["score"], row["width"]) for row in scales.rows] == [("dot", 8), ("dot", 16), ("scaled_dot", 8), ("scaled_dot", 16)]
    assert all(row["loss"] > 0 and row["entropy_random"] > 0 and row["entropy_model"] > 0 for row in scales.rows)
    assert [row["heads"] for row in heads.rows] == ["1", "2"]
    assert [figure.name for figure in found.figures] == ["why-gradients", "why-speed", "why-widths", "why-heads"]
