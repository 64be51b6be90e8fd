from __future__ import annotations

import math

import pytest
import torch

from attent.attention import attend
from attent.attention.positions import Sinusoidal
from attent.attention.positions.sinusoidal import waves
from attent.errors import ArgumentError


def test_one_number_by_hand() -> None:
    # width 4: angles p and p/10000^{2/4} = p/100
    expected = [math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)]
    torch.testing.assert_close(waves(torch.tensor([3]), 4), torch.tensor([expected]))
    # an odd width ends in a sine, of p/10000^{2/3} = p/464.1589
    expected = [math.sin(3), math.cos(3), math.sin(3 / 464.1589)]
    torch.testing.assert_close(waves(torch.tensor([3]), 3), torch.tensor([expected]))


def test_a_step_is_a_turn_whatever_the_position() -> None:
    """PE(p + n) is a linear function of PE(p), the argument of the paper."""
    table = waves(torch.arange(50), 6)
    products = table @ table.T
    for distance in (1, 7):
        torch.testing.assert_close(products.diagonal(distance), products[0, distance].expand(50 - distance))


def test_it_is_added_from_the_start_on() -> None:
    position, features = Sinusoidal(5), torch.randn(2, 7, 5)
    whole = position(features)
    torch.testing.assert_close(whole - features, waves(torch.arange(7), 5).expand(2, 7, 5))
    torch.testing.assert_close(position(features[:, 3:], 3), whole[:, 3:])
    rows = position(features[:, :2], torch.tensor([0, 4]))
    torch.testing.assert_close(rows[1] - features[1, :2], waves(torch.tensor([4, 5]), 5))
    assert position(features.bfloat16()).dtype == torch.bfloat16
    assert not list(position.parameters())


def test_with_it_self_attention_knows_the_order() -> None:
    features, order = torch.randn(2, 5, 4), torch.tensor([3, 0, 4, 2, 1])
    for position, agree in ((torch.nn.Identity(), True), (Sinusoidal(4), False)):
        first, second = position(features), position(features[:, order])
        assert torch.allclose(attend(second, second, second), attend(first, first, first)[:, order], atol=1e-5) is agree


def test_width_is_at_least_one() -> None:
    with pytest.raises(ArgumentError, match=r"^width must be ≥ 1, got 0$"):
        Sinusoidal(0)
    assert repr(Sinusoidal(5)) == "Sinusoidal(width=5)"
