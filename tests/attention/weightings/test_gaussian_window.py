from __future__ import annotations

import math

import pytest
import torch

from attent.attention import attend, prepare, reference
from attent.attention.masks import Around
from attent.attention.scores import Additive
from attent.attention.weightings import GaussianWindow
from attent.errors import ArgumentError, ShapeError, StaleMapError

B, H, TQ, TK, D = 2, 3, 5, 7, 4


def tensors() -> list[torch.Tensor]:
    return [torch.randn(B, H, length, D, dtype=torch.float64) for length in (TQ, TK, TK)]


def centers() -> torch.Tensor:
    return (6 * torch.rand(B, TQ, dtype=torch.float64)).requires_grad_()


def test_weights_are_multiplied_and_not_normalised_again() -> None:
    (query, key, value), about = tensors(), centers().detach()
    arguments = {"weighting": GaussianWindow(about, 1.5)}
    context, weights = attend(query, key, value, **arguments, return_map=True)
    plain = attend(query, key, value, return_map=True)[1].dense()
    expected = plain * torch.exp(-((torch.arange(TK) - about[:, None, :, None]) ** 2) / (2 * 1.5**2))
    torch.testing.assert_close(weights.dense(), expected)
    torch.testing.assert_close(context, expected @ value)
    assert (weights.dense().sum(-1) < 1).all()
    torch.testing.assert_close(weights.received(), expected.sum(-2))
    assert torch.equal(weights.argmax(), expected.argmax(-1))
    steps = reference.steps(*prepare(query, key, value, **arguments))
    assert list(steps)[-3:] == ["normalised", "weights", "output"]
    torch.testing.assert_close(steps["normalised"], plain)
    # by hand: two equal scores, weights 1/2 each; the second key is one σ away
    arguments = {"weighting": GaussianWindow(torch.zeros(1, 2), 1.0), "return_map": True}
    weights = attend(*torch.zeros(3, 1, 2, 1), **arguments)[1].dense()
    torch.testing.assert_close(weights[0, 0], torch.tensor([0.5, 0.5 * math.exp(-0.5)]))


def test_tanh_forms_and_dropout_agree_with_the_formula() -> None:
    (query, key, value), about, score = tensors(), centers(), Additive(D, D, 5).double()
    results = []
    for implementation in ("reference", "tanh", "tiled"):
        arguments = {"score": score, "mask": Around(about, 3), "dropout": 0.3, "seed": 5}
        arguments |= {"weighting": GaussianWindow(about, 1.5), "implementation": implementation}
        context = attend(query, key, value, **arguments)
        results.append([context, *torch.autograd.grad(context.square().sum(), [about, *score.parameters()])])
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(results[2], results[0])


def test_a_map_knows_that_its_centres_were_changed() -> None:
    query, about = torch.randn(1, 8, 5), torch.zeros(1, 8)
    arguments = {"weighting": GaussianWindow(about, 1.0), "mask": Around(about, 3)}
    weights = attend(query, query, query, **arguments, return_map=True)[1]
    snapshot, before = weights.keep(), weights.dense()
    about.add_(1.0)
    with pytest.raises(StaleMapError, match=r"was changed in place"):
        weights.dense()
    torch.testing.assert_close(snapshot.dense(), before)


def test_what_it_takes() -> None:
    query = torch.randn(2, 5, 3)
    with pytest.raises(ArgumentError, match=r"^sigma must be > 0, got 0.0$"):
        GaussianWindow(torch.zeros(1, 2), 0.0)
    with pytest.raises(ShapeError, match=r"^centers must be \(B\|1, Tq\), got \(2,\)$"):
        GaussianWindow(torch.zeros(2), 1.0)
    with pytest.raises(ShapeError, match=r"^centers must be \(B\|1, Tq\) = \(2, 5\), got \(3, 5\)$"):
        attend(query, query, query, weighting=GaussianWindow(torch.zeros(3, 5), 1.0))
    with pytest.raises(ArgumentError, match=r"^weighting must be a Weighting, got 'gaussian_window'$"):
        attend(query, query, query, weighting="gaussian_window")


def test_gradients_reach_the_centres() -> None:
    (query, key, value), about = tensors(), centers()

    def context(about: torch.Tensor) -> torch.Tensor:
        # computed of a leaf before, as a model's are
        return attend(query, key, value, weighting=GaussianWindow(about * 1.0, 2.0), implementation="tiled")

    assert torch.autograd.gradcheck(context, [about])
