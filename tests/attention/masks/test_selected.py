from __future__ import annotations

import pytest
import torch

from attent.attention import attend, prepare
from attent.attention.backends import row_tiles
from attent.attention.base import Pairs
from attent.attention.masks import Selected
from attent.errors import DTypeError, ShapeError


def test_each_query_sees_its_chosen_keys() -> None:
    mask = Selected(torch.tensor([[0, 2], [1, 1], [-1, -1], [4, -1]]))
    assert mask.draw(4, 5) == "■·■··\n·■···\n·····\n····■"
    query, key = torch.randn(4, 3), torch.randn(5, 3)
    output = attend(query, key, key, mask=mask)
    torch.testing.assert_close(output[0], attend(query[:1], key[[0, 2]], key[[0, 2]])[0])
    torch.testing.assert_close(output[[1, 3]], key[[1, 4]])
    assert output[2].count_nonzero() == 0


def test_sequences_heads_and_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tiles, "TILE", 100)
    indices = torch.randint(-1, 7, (2, 3, 5, 2))
    tensors = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4)
    call = prepare(*tensors, mask=Selected(indices)).call
    table = (indices[..., None] == torch.arange(7)).any(-2)
    assert torch.equal(call.allowed(call.pairs()), table)
    torch.testing.assert_close(
        attend(*tensors, mask=Selected(indices), implementation="tiled"), attend(*tensors, mask=table)
    )


def test_keys_of_a_part_of_the_columns() -> None:
    mask, at = Selected(torch.tensor([[0, 5], [3, 4]])), torch.arange(2)
    assert mask.allowed(Pairs(at, torch.arange(3, 6), at[None], 1))[0, 0].tolist() == [
        [False, False, True],
        [True, True, False],
    ]
    assert mask.allowed(Pairs(at, torch.arange(0), at[None], 1)).shape == (1, 1, 2, 0)


def test_what_does_not_fit() -> None:
    with pytest.raises(DTypeError, match=r"^selected keys must be whole numbers, got torch.bool$"):
        Selected(torch.ones(5, 7).bool())
    with pytest.raises(
        ShapeError, match=r"^selected keys must be \(Tq, n\) or \(B\|1, H\|1, Tq, n\), got \(2, 5, 7\)$"
    ):
        Selected(torch.zeros(2, 5, 7).long())
    with pytest.raises(
        ShapeError, match=r"^selected keys must be \(B\|1, H\|1, Tq, n\) = \(2, 3, 7, n\), got \(5, 2\)$"
    ):
        Selected(torch.zeros(5, 2).long()).check(2, 3, 7, 11)
    with pytest.raises(ShapeError, match=r"got \(5, 1, 7, 2\)$"):
        Selected(torch.zeros(5, 1, 7, 2).long()).check(2, 3, 7, 11)
