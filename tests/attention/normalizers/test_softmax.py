from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from attent.attention.normalizers import Softmax


def test_weights_are_positive_and_sum_to_one_whatever_is_added() -> None:
    scores = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    weights = Softmax()(scores)
    assert (weights > 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64))
    torch.testing.assert_close(Softmax()(scores + 100), weights)
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4])
    torch.testing.assert_close(Softmax()(scores[..., order]), weights[..., order])


def test_one_number_by_hand() -> None:
    # e^0 : e^{ln 2} : e^{ln 5} = 1 : 2 : 5
    scores = torch.tensor([[0.0, math.log(2), math.log(5)]])
    torch.testing.assert_close(Softmax()(scores), torch.tensor([[1 / 8, 2 / 8, 5 / 8]]))
    # without the third 1 : 2
    torch.testing.assert_close(
        Softmax()(scores, torch.tensor([[True, True, False]])), torch.tensor([[1 / 3, 2 / 3, 0.0]])
    )


def test_gradients_with_hidden_pairs() -> None:
    allowed = torch.tensor([[True, False, True], [False, False, False]])
    scores = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    def weights(scores: Tensor) -> Tensor:
        return Softmax()(scores, allowed)

    assert torch.autograd.gradcheck(weights, [scores])
    assert torch.autograd.gradgradcheck(weights, [scores])


@pytest.mark.parametrize("has_blind_row", [False, True])
def test_infinity_hides_pairs_as_a_mask_does(has_blind_row: bool) -> None:
    allowed = torch.tensor([[True, False, True], [False, not has_blind_row, False], [True, True, True]])
    scores = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    masked = scores.masked_fill(~allowed, -torch.inf)
    results = [Softmax()(scores, allowed), Softmax().of_masked(masked), Softmax().of_masked(masked, allowed)]
    gradients = [torch.autograd.grad(weights.sin().sum(), scores, retain_graph=True)[0] for weights in results]
    for weights, gradient in zip(results, gradients, strict=True):
        assert torch.equal(weights, results[0])
        torch.testing.assert_close(gradient, gradients[0])
