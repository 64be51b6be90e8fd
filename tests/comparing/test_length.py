from __future__ import annotations

import pytest

from attent.comparing.length import LEAST, compare, ranges
from attent.errors import UnknownNameError


def test_ranges_hold_every_row_once_and_enough_of_them() -> None:
    lengths = [1] * 5 + [7] * 40 + [12] * 30 + [33] * 3
    found = ranges(lengths, 5)
    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    # lengths 1 to 5 are too few, and so are 31 to 35
    assert [len(rows) for rows in found] == [45, 33]
    assert all(len(rows) >= LEAST for rows in found)
    assert ranges([3], 5) == [[0]]


def test_models_are_judged_by_length(options, silent) -> None:
    said: list[str] = []
    found = compare(options(models=["none", "luong"], seeds=2), say=said.append, progress=silent)
    assert said[0].startswith("4 trainings, none finished already: at most about ")
    assert said[1:5] == ["1/4 dates/none-1", "2/4 dates/none-2", "3/4 dates/luong-1", "4/4 dates/luong-2"]
    summary, by_length = found.report.tables
    assert [row["model"] for row in summary.rows] == ["RNN, fixed vector", "RNN, Luong"]
    assert all(row["updates"] == 2 and row["parameters"] > 100 and len(row["values"]["by_seed"]) == 2 for row in summary.rows)
    (figure,) = found.figures
    assert [line.name for line in figure.series] == ["RNN, fixed vector", "RNN, Luong"]
    assert sum(point.sentences for point in figure.series[0].points) == 24
    assert len(by_length.rows) == len(figure.series[0].points)
    # once more, nothing is left to do
    said.clear()
    again = compare(options(models=["none", "luong"], seeds=2), say=said.append, progress=silent)
    assert said[0].startswith("4 trainings, 4 of them finished already")
    assert len(said) == 1
    assert again.values()["figures"] == found.values()["figures"]


def test_an_unknown_model_is_refused_before_anything_is_made(options) -> None:
    with pytest.raises(UnknownNameError, match="unknown model 'rnn'"):
        compare(options(models=["rnn"]))
    assert not options().out.exists()
