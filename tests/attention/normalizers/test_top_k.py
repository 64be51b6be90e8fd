from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from attent.attention.normalizers import TopK
from attent.errors import ArgumentError


@pytest.mark.parametrize("k", [7, 8, 100])
def test_with_all_keys_it_is_the_softmax(k: int) -> None:
    scores = torch.randn(2, 3, 5, 7)
    assert torch.equal(TopK(k)(scores), scores.softmax(-1))


def test_k_weights_and_no_more() -> None:
    scores = torch.randn(2, 3, 5, 7)
    for k in range(1, 7):
        weights = TopK(k)(scores)
        assert ((weights > 0).sum(-1) == k).all()
        best = scores.topk(k, -1)
        torch.testing.assert_close(weights.gather(-1, best.indices), best.values.softmax(-1))
    assert (TopK(2)(torch.zeros(3, 5)) == 0.5).sum() == 6


def test_one_number_by_hand() -> None:
    # the two best of ln 2, 0, ln 3 weigh 2 : 3
    torch.testing.assert_close(
        TopK(2)(torch.tensor([[math.log(2), 0.0, math.log(3)]])), torch.tensor([[0.4, 0.0, 0.6]])
    )


def test_fewer_visible_keys_than_k_share_the_weight() -> None:
    allowed = torch.tensor([[True, False, False, True, False], [False] * 5])
    scores = torch.tensor([[0.0, 9.0, 9.0, 0.0, 9.0]]).expand(2, 5)
    assert TopK(3)(scores, allowed).tolist() == [[0.5, 0.0, 0.0, 0.5, 0.0], [0.0] * 5]


def test_gradients() -> None:
    def weights(scores: Tensor) -> Tensor:
        return TopK(3)(scores)

    assert torch.autograd.gradcheck(weights, [torch.randn(3, 7, dtype=torch.float64, requires_grad=True)])


def test_k_is_at_least_one() -> None:
    with pytest.raises(ArgumentError, match=r"^k must be ≥ 1, got 0$"):
        TopK(0)
