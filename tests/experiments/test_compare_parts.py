from __future__ import annotations

import pytest

from attent.errors import ArgumentError, UnknownNameError
from attent.experiments.compare_scores import ALL_SCORES, compare


def test_scores_are_compared_in_both_models_and_local_ones_in_the_rnn(options, silent) -> None:
    found = compare(options(scores=["location", "local-p"]), say=lambda line: None, progress=silent)
    (rows,) = [table.rows for table in found.report.tables]
    assert [(row["model"], row["score"]) for row in rows] == [
        ("RNN, Luong", "location"),
        ("RNN, Luong", "local-p"),
        ("Transformer", "location"),
    ]
    assert all(row["dates_values"]["sentences"] == row["combinations_values"]["sentences"] == 24 for row in rows)
    (figure,) = found.figures
    assert [[point.x for point in line.points] for line in figure.series] == [["location", "local-p"], ["location"]]


def test_an_unknown_score_is_refused(options) -> None:
    assert {"location", "local-m", "local-p", "additive"} <= set(ALL_SCORES)
    with pytest.raises(UnknownNameError, match="unknown score 'local'"):
        compare(options(scores=["local"]))


def test_local_attention_is_of_the_rnn(options) -> None:
    with pytest.raises(ArgumentError, match="local-m and local-p need a recurrent decoder: --models rnn"):
        compare(options(models=["transformer"], scores=["local-p", "local-m"]))
    assert not options().out.exists()
