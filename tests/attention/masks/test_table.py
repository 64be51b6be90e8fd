from __future__ import annotations

import pytest
import torch

from attent.attention import attend
from attent.attention.backends import row_tiles
from attent.attention.masks import Table
from attent.errors import DTypeError, ShapeError

SHAPES = [(5, 7), (1, 7), (5, 1), (2, 3, 5, 7), (1, 3, 5, 7), (2, 1, 1, 7), (2, 3, 5, 1), (1, 1, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("implementation", ["reference", "tiled", "sdpa"])
def test_true_means_may_attend(shape: tuple[int, ...], implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tiles, "TILE", 50)
    query, key, value = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 11)
    table = torch.rand(shape) < 0.7
    weights = (query @ key.mT / 2).masked_fill(~table, -torch.inf).softmax(-1).nan_to_num(0.0)
    output = attend(query, key, value, mask=table, implementation=implementation)
    torch.testing.assert_close(output, weights @ value)
    torch.testing.assert_close(attend(query, key, value, mask=Table(table), implementation=implementation), output)


def test_three_axes_are_those_of_tensors_with_three() -> None:
    query, key = torch.randn(2, 5, 3), torch.randn(2, 7, 3)
    table = torch.rand(2, 5, 7) < 0.7
    torch.testing.assert_close(attend(query, key, key, mask=table), attend(query, key, key, mask=table[:, None]))


def test_the_picture() -> None:
    assert Table(torch.tensor([[True, False], [False, True]])).draw(2) == "■·\n·■"
    assert repr(Table(torch.ones(2, 3, 5, 7).bool())) == "Table((2, 3, 5, 7))"


def test_what_does_not_fit() -> None:
    with pytest.raises(
        DTypeError,
        match=r"^mask must be boolean, True where a query may attend, got torch.uint8; a float term is a bias$",
    ):
        Table(torch.ones(5, 7).byte())
    with pytest.raises(ShapeError, match=r"^mask must be \(Tq, Tk\) or \(B\|1, H\|1, Tq, Tk\), got \(2, 5, 7\)$"):
        Table(torch.ones(2, 5, 7).bool())
    with pytest.raises(ShapeError, match=r"^mask must be \(B\|1, H\|1, Tq, Tk\) = \(2, 4, 5, 7\), got \(2, 4, 5, 2\)$"):
        Table(torch.ones(2, 4, 5, 2).bool()).check(2, 4, 5, 7)
