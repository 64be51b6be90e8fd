"""Each normalizer: its defining property, one number worked by hand, and its gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from attent.attention import attend
from attent.attention.base import Normalizer
from attent.attention.normalizers import Entmax15, Hard, Identity, Sigmoid, Softmax, Sparsemax, TopK
from attent.errors import ArgumentError


def test_weights_are_positive_and_sum_to_one_whatever_is_added() -> None:
    scores = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    weights = Softmax()(scores)
    assert (weights > 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64))
    torch.testing.assert_close(Softmax()(scores + 100), weights)
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4])
    torch.testing.assert_close(Softmax()(scores[..., order]), weights[..., order])


def test_softmax_one_number_by_hand() -> None:
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


def test_each_key_by_itself() -> None:
    scores = torch.randn(2, 3, 5, 7)
    weights = Sigmoid()(scores)
    torch.testing.assert_close(Sigmoid()(scores[..., 2:5]), weights[..., 2:5])
    assert ((weights > 0) & (weights < 1)).all()
    assert not Sigmoid.is_distribution
    assert not Sigmoid.shift_invariant


def test_sigmoid_one_number_by_hand() -> None:
    # σ(ln 3 + ln 2) = 6/7 and σ(−ln 2 + ln 2) = ½
    weights = Sigmoid(math.log(2))(torch.tensor([[math.log(3), -math.log(2)]]))
    torch.testing.assert_close(weights, torch.tensor([[6 / 7, 0.5]]))


def test_hidden_pairs_have_no_weight_and_no_gradient() -> None:
    scores = torch.randn(2, 3, requires_grad=True)
    allowed = torch.tensor([[True, False, True], [False, False, False]])
    weights = Sigmoid(-1.0)(scores, allowed)
    weights.sum().backward()
    assert torch.equal(weights != 0, allowed)
    assert torch.equal(scores.grad != 0, allowed)


def test_the_weights_are_the_scores() -> None:
    scores = torch.randn(2, 3, 5, 7)
    assert Identity()(scores) is scores
    allowed = torch.rand(2, 3, 5, 7) < 0.5
    assert torch.equal(Identity()(scores, allowed), scores * allowed)
    assert not Identity.is_distribution
    assert not Identity.shift_invariant


def test_identity_one_number_by_hand() -> None:
    s = torch.tensor([[1.0], [2.0]])
    # (ssᵀ)s: 1·1·1 + 1·2·2 = 5 and 2·1·1 + 2·2·2 = 10
    assert attend(s, s, s, score="dot", normalizer="linear").tolist() == [[5.0], [10.0]]


def test_all_weight_is_on_the_best_and_on_the_first_of_equals() -> None:
    scores = torch.randn(2, 3, 5, 7)
    weights = Hard()(scores)
    assert torch.equal(weights.sum(-1), torch.ones(2, 3, 5))
    assert torch.equal(weights.argmax(-1), scores.argmax(-1))
    assert Hard()(torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])).tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]


def test_the_best_of_those_that_may_be_seen() -> None:
    scores = torch.tensor([[1.0, 9.0, 3.0], [1.0, 9.0, 3.0]])
    allowed = torch.tensor([[True, False, True], [False, False, False]])
    assert Hard()(scores, allowed).tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


def test_the_gradient_to_the_scores_is_zero() -> None:
    scores = torch.randn(3, 5, requires_grad=True)
    (Hard()(scores) * torch.randn(3, 5)).sum().backward()
    assert torch.equal(scores.grad, torch.zeros(3, 5))


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


def test_top_k_one_number_by_hand() -> None:
    # the two best of ln 2, 0, ln 3 weigh 2 : 3
    torch.testing.assert_close(
        TopK(2)(torch.tensor([[math.log(2), 0.0, math.log(3)]])), torch.tensor([[0.4, 0.0, 0.6]])
    )


def test_fewer_visible_keys_than_k_share_the_weight() -> None:
    allowed = torch.tensor([[True, False, False, True, False], [False] * 5])
    scores = torch.tensor([[0.0, 9.0, 9.0, 0.0, 9.0]]).expand(2, 5)
    assert TopK(3)(scores, allowed).tolist() == [[0.5, 0.0, 0.0, 0.5, 0.0], [0.0] * 5]


def test_top_k_gradients() -> None:
    def weights(scores: Tensor) -> Tensor:
        return TopK(3)(scores)

    assert torch.autograd.gradcheck(weights, [torch.randn(3, 7, dtype=torch.float64, requires_grad=True)])


def test_k_is_at_least_one() -> None:
    with pytest.raises(ArgumentError, match=r"^k must be ≥ 1, got 0$"):
        TopK(0)


def bisected(normalizer: Normalizer, scores: Tensor) -> Tensor:
    """The weights by their definition: the τ for which they sum to one lies where halving the interval ends."""
    power, scores = (1, scores) if isinstance(normalizer, Sparsemax) else (2, scores / 2)
    low, high = scores.amax(-1, keepdim=True) - 1, scores.amax(-1, keepdim=True)
    for _ in range(100):
        middle = (low + high) / 2
        over = (scores - middle).clamp(min=0).pow(power).sum(-1, keepdim=True) > 1
        low, high = torch.where(over, middle, low), torch.where(over, high, middle)
    return (scores - low).clamp(min=0).pow(power)


SPARSE = pytest.mark.parametrize("normalizer", [Sparsemax(), Entmax15()], ids=["sparsemax", "entmax15"])


@SPARSE
@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("keys", [1, 2, 7, 61])
def test_it_agrees_with_its_definition(normalizer: Normalizer, spread: float, keys: int) -> None:
    scores = spread * torch.randn(3, 5, keys, dtype=torch.float64)
    weights = normalizer(scores)
    torch.testing.assert_close(weights, bisected(normalizer, scores), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 5, dtype=torch.float64))
    assert (weights >= 0).all()
    torch.testing.assert_close(normalizer(scores - 7.0), weights)


@SPARSE
def test_far_scores_and_hidden_ones_get_nothing(normalizer: Normalizer) -> None:
    weights = normalizer(torch.tensor([[0.0, 0.5, -3.0, -1e30]]))
    assert weights[0, 2:].tolist() == [0.0, 0.0]
    assert (weights[0, :2] > 0).all()
    torch.testing.assert_close(normalizer(torch.zeros(3, 5)), torch.full((3, 5), 0.2))
    allowed = torch.tensor([[True, False, True, True], [False] * 4])
    weights = normalizer(torch.tensor([[1.0, 9.0, 1.0, 1.0]]).expand(2, 4), allowed)
    torch.testing.assert_close(weights, torch.tensor([[1 / 3, 0.0, 1 / 3, 1 / 3], [0.0] * 4]))


def test_sparsemax_one_number_by_hand() -> None:
    # 1, ½, −2: with the first two τ = (1.5 − 1)/2 = ¼, so ¾, ¼ and, −2 lying below τ, 0
    assert Sparsemax()(torch.tensor([[1.0, 0.5, -2.0]])).tolist() == [[0.75, 0.25, 0.0]]
    # halves 0.7 and 0.5: with mean m = 0.6 and Σ(x − m)² = 0.02, τ = 0.6 − √((1 − 0.02)/2) = −0.1;
    # (0.7 + 0.1)² = 0.64 and (0.5 + 0.1)² = 0.36; a third at half −0.2 lies below τ
    torch.testing.assert_close(Entmax15()(torch.tensor([[1.4, 1.0, -0.4]])), torch.tensor([[0.64, 0.36, 0.0]]))


@SPARSE
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_sparsemax_gradients(normalizer: Normalizer, spread: float) -> None:
    allowed = torch.rand(5, 7) < 0.8
    allowed[3] = False
    scores = (spread * torch.randn(5, 7, dtype=torch.float64)).requires_grad_()

    def weights(scores: Tensor) -> Tensor:
        return normalizer(scores, allowed)

    assert torch.autograd.gradcheck(weights, [scores])
    assert torch.autograd.gradgradcheck(weights, [scores])


@SPARSE
def test_the_gradient_is_finite_where_one_key_takes_all_and_where_there_is_but_one(normalizer: Normalizer) -> None:
    for scores in (torch.tensor([[50.0, 0.0, -50.0]]), torch.tensor([[3.0]])):
        scores.requires_grad_()
        weights = normalizer(scores)
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


@SPARSE
def test_a_row_of_nan_stays_its_own(normalizer: Normalizer) -> None:
    scores = torch.randn(3, 5)
    expected = normalizer(scores)[1:]
    scores[0, 2] = torch.nan
    weights = normalizer(scores)
    assert weights[0].isnan().any()
    assert torch.equal(weights[1:], expected)
