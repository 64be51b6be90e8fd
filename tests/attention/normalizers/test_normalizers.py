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

LN2, LN3, LN5 = math.log(2), math.log(3), math.log(5)
SPARSE = pytest.mark.parametrize("normalizer", [Sparsemax(), Entmax15()], ids=["sparsemax", "entmax15"])


@pytest.mark.parametrize(
    ("normalizer", "scores", "hidden", "weights"),
    [
        # e^0 : e^{ln 2} : e^{ln 5} = 1 : 2 : 5, and without the third 1 : 2
        (Softmax(), [0.0, LN2, LN5], [], [1 / 8, 2 / 8, 5 / 8]),
        (Softmax(), [0.0, LN2, LN5], [2], [1 / 3, 2 / 3, 0.0]),
        # σ(ln 3 + ln 2) = 6/7 and σ(−ln 2 + ln 2) = ½
        (Sigmoid(LN2), [LN3, -LN2], [], [6 / 7, 0.5]),
        # the first of equals, and the best of those that may be seen
        (Hard(), [1.0, 3.0, 3.0], [], [0.0, 1.0, 0.0]),
        (Hard(), [2.0, 2.0, 2.0], [], [1.0, 0.0, 0.0]),
        (Hard(), [1.0, 9.0, 3.0], [1], [0.0, 0.0, 1.0]),
        # the two best of ln 2, 0, ln 3 weigh 2 : 3; fewer visible keys than k share the weight
        (TopK(2), [LN2, 0.0, LN3], [], [0.4, 0.0, 0.6]),
        (TopK(3), [0.0, 9.0, 9.0, 0.0, 9.0], [1, 2, 4], [0.5, 0.0, 0.0, 0.5, 0.0]),
        # 1, ½, −2: with the first two τ = (1.5 − 1)/2 = ¼, so ¾, ¼ and, −2 lying below τ, 0
        (Sparsemax(), [1.0, 0.5, -2.0], [], [0.75, 0.25, 0.0]),
        (Sparsemax(), [1.0, 9.0, 1.0, 1.0], [1], [1 / 3, 0.0, 1 / 3, 1 / 3]),
        # halves 0.7 and 0.5: with mean m = 0.6 and Σ(x − m)² = 0.02, τ = 0.6 − √((1 − 0.02)/2) = −0.1;
        # (0.7 + 0.1)² = 0.64 and (0.5 + 0.1)² = 0.36; a third at half −0.2 lies below τ
        (Entmax15(), [1.4, 1.0, -0.4], [], [0.64, 0.36, 0.0]),
        (Entmax15(), [1.0, 9.0, 1.0, 1.0], [1], [1 / 3, 0.0, 1 / 3, 1 / 3]),
        (Identity(), [3.0, 9.0, -2.0], [1], [3.0, 0.0, -2.0]),
    ],
)
def test_numbers_by_hand(normalizer: Normalizer, scores: list[float], hidden: list[int], weights: list[float]) -> None:
    # and a second row, which sees nothing
    allowed = torch.ones(2, len(scores), dtype=torch.bool)
    allowed[0, hidden], allowed[1] = False, False
    actual = normalizer(torch.tensor([scores, scores]), allowed)
    torch.testing.assert_close(actual[0], torch.tensor(weights))
    assert torch.equal(actual[0] != 0, torch.tensor(weights) != 0)
    assert actual[1].count_nonzero() == 0
    if not hidden:
        assert torch.equal(normalizer(torch.tensor([scores])), actual[:1])


@pytest.mark.parametrize("normalizer", [Softmax(), TopK(3)], ids=["softmax", "top_k"])
def test_gradients_with_hidden_pairs(normalizer: Normalizer) -> None:
    allowed = torch.tensor([[True, False, True, True, True], [False] * 5, [True] * 5])
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)

    def weights(scores: Tensor) -> Tensor:
        return normalizer(scores, allowed)

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


def test_a_sigmoid_is_of_each_key_by_itself_and_hidden_pairs_have_no_gradient() -> None:
    scores = torch.randn(2, 3, 5, 7)
    weights = Sigmoid()(scores)
    torch.testing.assert_close(Sigmoid()(scores[..., 2:5]), weights[..., 2:5])
    assert ((weights > 0) & (weights < 1)).all()
    allowed = torch.tensor([[True, False, True], [False, False, False]])
    scores = torch.randn(2, 3, requires_grad=True)
    Sigmoid(-1.0)(scores, allowed).sum().backward()
    assert torch.equal(scores.grad != 0, allowed)


def test_the_identity_leaves_scores_as_they_are_and_neither_is_a_distribution() -> None:
    scores, s = torch.randn(2, 3, 5, 7), torch.tensor([[1.0], [2.0]])
    assert Identity()(scores) is scores
    # (ssᵀ)s: 1·1·1 + 1·2·2 = 5 and 2·1·1 + 2·2·2 = 10
    assert attend(s, s, s, score="dot", normalizer="linear").tolist() == [[5.0], [10.0]]
    for normalizer in (Identity, Sigmoid):
        assert not normalizer.is_distribution
        assert not normalizer.shift_invariant


def test_hard_weight_is_on_the_best_and_has_no_gradient() -> None:
    scores = torch.randn(2, 3, 5, 7, requires_grad=True)
    weights = Hard()(scores)
    assert torch.equal(weights.sum(-1), torch.ones(2, 3, 5))
    assert torch.equal(weights.argmax(-1), scores.argmax(-1))
    (weights * torch.randn(7)).sum().backward()
    assert scores.grad.count_nonzero() == 0


def test_k_weights_and_no_more() -> None:
    scores = torch.randn(2, 3, 5, 7)
    for k in range(1, 7):
        weights = TopK(k)(scores)
        assert ((weights > 0).sum(-1) == k).all()
        best = scores.topk(k, -1)
        torch.testing.assert_close(weights.gather(-1, best.indices), best.values.softmax(-1))
    for k in (7, 8, 100):
        assert torch.equal(TopK(k)(scores), scores.softmax(-1))
    assert (TopK(2)(torch.zeros(3, 5)) == 0.5).sum() == 6
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


@SPARSE
@pytest.mark.parametrize(("spread", "keys"), [(1.0, 1), (0.1, 2), (10.0, 7), (0.1, 61), (1.0, 61), (10.0, 61)])
def test_it_agrees_with_its_definition(normalizer: Normalizer, spread: float, keys: int) -> None:
    scores = spread * torch.randn(3, 5, keys, dtype=torch.float64)
    weights = normalizer(scores)
    torch.testing.assert_close(weights, bisected(normalizer, scores), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 5, dtype=torch.float64))
    assert (weights >= 0).all()
    torch.testing.assert_close(normalizer(scores - 7.0), weights)


@SPARSE
def test_far_scores_get_nothing_and_nan_stays_in_its_row(normalizer: Normalizer) -> None:
    weights = normalizer(torch.tensor([[0.0, 0.5, -3.0, -1e30]]))
    assert weights[0, 2:].tolist() == [0.0, 0.0]
    assert (weights[0, :2] > 0).all()
    torch.testing.assert_close(normalizer(torch.zeros(3, 5)), torch.full((3, 5), 0.2))
    scores = torch.randn(3, 5)
    expected = normalizer(scores)[1:]
    scores[0, 2] = torch.nan
    weights = normalizer(scores)
    assert weights[0].isnan().any()
    assert torch.equal(weights[1:], expected)


@SPARSE
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_sparsemax_gradients(normalizer: Normalizer, spread: float) -> None:
    allowed = torch.rand(4, 5) < 0.8
    allowed[3] = False
    scores = (spread * torch.randn(4, 5, dtype=torch.float64)).requires_grad_()

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
    at = torch.tensor(scores)
    # Martins and Astudillo 2016, eq. 9: diag(s) − s sᵀ/|S|, s marking the support S
    support = (Sparsemax()(at) > 0).to(at.dtype)
    jacobian = support.diag() - torch.outer(support, support) / support.sum()
    torch.testing.assert_close(torch.autograd.functional.jacobian(Sparsemax().normalize, at), jacobian)
