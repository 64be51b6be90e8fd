from __future__ import annotations

import math

import torch

from attent.attention.normalizers import Sigmoid


def test_each_key_by_itself() -> None:
    scores = torch.randn(2, 3, 5, 7)
    weights = Sigmoid()(scores)
    torch.testing.assert_close(Sigmoid()(scores[..., 2:5]), weights[..., 2:5])
    assert ((weights > 0) & (weights < 1)).all()
    assert not Sigmoid.is_distribution
    assert not Sigmoid.shift_invariant


def test_one_number_by_hand() -> None:
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
