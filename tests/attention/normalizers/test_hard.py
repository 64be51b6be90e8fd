from __future__ import annotations

import torch

from attent.attention.normalizers import Hard


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


def test_it_is_the_limit_of_the_softmax() -> None:
    scores = torch.randn(3, 5, 7)
    torch.testing.assert_close((scores / 1e-5).softmax(-1), Hard()(scores))


def test_the_gradient_to_the_scores_is_zero() -> None:
    scores = torch.randn(3, 5, requires_grad=True)
    (Hard()(scores) * torch.randn(3, 5)).sum().backward()
    assert torch.equal(scores.grad, torch.zeros(3, 5))
