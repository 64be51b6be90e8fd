from __future__ import annotations

import pytest
import torch
from gallery.drawing import sheet
from gallery.elsewhere import Elsewhere
from gallery.encoder import Reading
from gallery.sentences import Pair, scatter


@pytest.fixture
def pair(habits: Reading) -> Pair:
    """From c to b, where the first head looks one piece back, elsewhere half as much."""
    return Pair(habits, "c", "b", Elsewhere(torch.tensor([[0.5, 0.0, 0.2]]), torch.tensor([[0.75, 0.0, 0.25]]), 7))


def test_the_best_head_is_that_of_the_largest_weight(pair: Pair) -> None:
    assert pair.cell == (3, 2)
    assert pair.weights.tolist() == [[1.0, 0.0, pytest.approx(0.2)]]
    assert pair.best == (0, 0)
    assert pair.from_others(0, 0) == 0.0
    assert pair.from_others(0, 2) == pytest.approx(0.2)


def test_what_is_said_is_what_was_found(pair: Pair) -> None:
    summary = pair.describe()
    assert "*c → b*, 1 token earlier: layer 0, head 0 gives it 1.00" in summary
    assert "the mean is 0.50, and one pair in twenty has more than 0.75" in summary
    assert "1 of 3 heads give *c → b* more than 19 of 20 pairs elsewhere; by chance, 0.1 would." in summary


def test_every_head_is_a_dot(pair: Pair) -> None:
    axes = sheet(2, 2).subplots()
    scatter(axes, pair)
    dots = axes.lines[1]
    assert dots.get_xdata() == pytest.approx([0.5, 0.0, 0.2])
    assert dots.get_ydata() == pytest.approx([1.0, 0.0, 0.2])
    assert [text.get_text() for text in axes.texts][-1] == "0.0"
    assert axes.get_xlabel() == "the same offset (-1) elsewhere, mean"
