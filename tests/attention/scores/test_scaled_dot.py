from __future__ import annotations

import math

import torch

from attent.attention import attend
from attent.attention.scores import Dot, ScaledDot


def test_it_is_the_dot_product_over_the_root_of_the_width() -> None:
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    torch.testing.assert_close(ScaledDot()(query, key), Dot()(query, key) / math.sqrt(7))
    torch.testing.assert_close(ScaledDot(0.3)(query, key), Dot()(query, key) * 0.3)
    # a scale that was set goes to every implementation
    for implementation in ("sdpa", "tiled", "reference"):
        output = attend(query, key, key, score=ScaledDot(1.0), implementation=implementation)
        torch.testing.assert_close(output, attend(query, key, key, score="dot", implementation="reference"))


def test_of_vectors_of_variance_one_the_scores_have_variance_one() -> None:
    query, key = torch.randn(1, 1, 499, 64), torch.randn(1, 1, 499, 64)
    assert 0.9 < ScaledDot()(query, key).var() < 1.1
    assert Dot()(query, key).var() > 50


def test_one_number_by_hand() -> None:
    # (1·2 + 1·4 + 1·1 + 1·1) / √4 = 8/2
    steps = ScaledDot().steps(torch.ones(1, 1, 1, 4), torch.tensor([[[[2.0, 4.0, 1.0, 1.0]]]]))
    assert {name: tensor.item() for name, tensor in steps.items()} == {"products": 8.0, "scores": 4.0}


def test_repr() -> None:
    assert repr(ScaledDot()) == "ScaledDot()"
    assert repr(ScaledDot(0.5)) == "ScaledDot(scale=0.5)"
