from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attent.attention.normalizers import Sparsemax


def bisected(scores: Tensor) -> Tensor:
    """The weights by their definition: the τ for which they sum to one lies where halving the interval ends."""
    low, high = scores.amax(-1, keepdim=True) - 1, scores.amax(-1, keepdim=True)
    for _ in range(100):
        middle = (low + high) / 2
        over = (scores - middle).clamp(min=0).sum(-1, keepdim=True) > 1
        low, high = torch.where(over, middle, low), torch.where(over, high, middle)
    return (scores - low).clamp(min=0)


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("keys", [1, 2, 7, 61])
def test_it_agrees_with_its_definition(spread: float, keys: int) -> None:
    scores = spread * torch.randn(3, 5, keys, dtype=torch.float64)
    weights = Sparsemax()(scores)
    torch.testing.assert_close(weights, bisected(scores), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 5, dtype=torch.float64))
    assert (weights >= 0).all()
    torch.testing.assert_close(Sparsemax()(scores - 7.0), weights)


def test_far_scores_have_no_weight_at_all() -> None:
    weights = Sparsemax()(torch.tensor([[0.0, 0.5, -3.0, -1e30]]))
    assert weights[0, 2:].tolist() == [0.0, 0.0]
    assert (weights[0, :2] > 0).all()


def test_equal_scores_share_and_hidden_ones_get_nothing() -> None:
    torch.testing.assert_close(Sparsemax()(torch.zeros(3, 5)), torch.full((3, 5), 0.2))
    allowed = torch.tensor([[True, False, True, True], [False] * 4])
    weights = Sparsemax()(torch.tensor([[1.0, 9.0, 1.0, 1.0]]).expand(2, 4), allowed)
    torch.testing.assert_close(weights, torch.tensor([[1 / 3, 0.0, 1 / 3, 1 / 3], [0.0] * 4]))


def test_one_number_by_hand() -> None:
    # 1, ½, −2: with the first two τ = (1.5 − 1)/2 = ¼, so ¾, ¼ and, −2 lying below τ, 0
    assert Sparsemax()(torch.tensor([[1.0, 0.5, -2.0]])).tolist() == [[0.75, 0.25, 0.0]]


@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_gradients(spread: float) -> None:
    allowed = torch.rand(5, 7) < 0.8
    allowed[3] = False
    scores = (spread * torch.randn(5, 7, dtype=torch.float64)).requires_grad_()

    def weights(scores: Tensor) -> Tensor:
        return Sparsemax()(scores, allowed)

    assert torch.autograd.gradcheck(weights, [scores])
    assert torch.autograd.gradgradcheck(weights, [scores])


def test_the_gradient_is_finite_where_one_key_takes_all_and_where_there_is_but_one() -> None:
    for scores in (torch.tensor([[50.0, 0.0, -50.0]]), torch.tensor([[3.0]])):
        scores.requires_grad_()
        weights = Sparsemax()(scores)
        assert weights[0, 0] == 1
        (weights * torch.randn(scores.shape)).sum().backward()
        torch.testing.assert_close(scores.grad, torch.zeros_like(scores), rtol=0, atol=1e-6)


@pytest.mark.parametrize("scores", [[1.0, 0.0], [0.0, 3.0, 3.0, 2.5], [4.0, 4.0, 3.0, 4.0], [2.0, 2.0, 2.0, 2.0]])
def test_a_score_on_the_threshold_has_neither_weight_nor_gradient(scores: list[float]) -> None:
    def jacobian(weights: Tensor) -> Tensor:
        # Martins and Astudillo 2016, eq. 9: diag(s) − s sᵀ/|S|, s marking the support S
        support = (weights > 0).to(weights.dtype)
        return support.diag() - torch.outer(support, support) / support.sum()

    at = torch.tensor(scores)
    torch.testing.assert_close(torch.autograd.functional.jacobian(Sparsemax().normalize, at), jacobian(Sparsemax()(at)))


def test_a_row_of_nan_stays_its_own() -> None:
    scores = torch.randn(3, 5)
    expected = Sparsemax()(scores)[1:]
    scores[0, 2] = torch.nan
    weights = Sparsemax()(scores)
    assert weights[0].isnan().any()
    assert torch.equal(weights[1:], expected)
