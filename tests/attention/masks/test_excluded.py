from __future__ import annotations

import pytest
import torch

from attent.attention import attend
from attent.attention.backends import row_tiles
from attent.attention.masks import Excluded
from attent.errors import DTypeError, ShapeError


def test_each_query_sees_all_but_its_excluded_keys() -> None:
    mask = Excluded(torch.tensor([[0, 2], [1, 1], [-1, -1], [4, -1]]))
    assert mask.draw(4, 5) == "·■·■■\n■·■■■\n■■■■■\n■■■■·"
    query, key = torch.randn(4, 3), torch.randn(5, 3)
    output = attend(query, key, key, mask=mask)
    torch.testing.assert_close(output[0], attend(query[:1], key[[1, 3, 4]], key[[1, 3, 4]])[0])
    torch.testing.assert_close(output[2], attend(query[2:3], key, key)[0])


def test_leaving_one_out_of_a_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tiles, "TILE", 20)
    key = torch.randn(7, 2)
    _, weights = attend(key, key, key, mask=Excluded(torch.arange(7)[:, None]), implementation="tiled", return_map=True)
    assert weights.dense().diagonal().count_nonzero() == 0
    torch.testing.assert_close(weights.dense().sum(-1), torch.ones(7))


def test_the_only_key_excluded_leaves_nothing() -> None:
    key = torch.randn(1, 2)
    assert attend(key, key, key, mask=Excluded(torch.tensor([[0]]))).count_nonzero() == 0


def test_what_does_not_fit() -> None:
    with pytest.raises(DTypeError, match=r"^excluded keys must be whole numbers, got torch.float32$"):
        Excluded(torch.ones(5, 7))
    with pytest.raises(
        ShapeError, match=r"^excluded keys must be \(B\|1, H\|1, Tq, n\) = \(2, 3, 7, n\), got \(5, 2\)$"
    ):
        Excluded(torch.zeros(5, 2).long()).check(2, 3, 7, 11)
