import pytest
import torch

from attent.errors import UnknownNameError
from attent.layers.feed_forward import FeedForward


def test_every_position_is_treated_alike_and_alone() -> None:
    layer, features = FeedForward(5, 7), torch.randn(2, 3, 5)
    whole = layer(features)
    assert whole.shape == (2, 3, 5)
    torch.testing.assert_close(layer(features[1, 2]), whole[1, 2])


def test_worked_by_hand() -> None:
    layer = FeedForward(2, 2)
    with torch.no_grad():
        layer.widen.weight.copy_(torch.tensor([[1.0, 2.0], [-1.0, 0.0]]))
        layer.widen.bias.copy_(torch.tensor([0.5, 0.0]))
        layer.narrow.weight.copy_(torch.tensor([[1.0, 1.0], [2.0, -1.0]]))
        layer.narrow.bias.copy_(torch.tensor([0.0, 1.0]))
    # max(0, [1·3 + 2·1 + 0.5, −1·3]) = [5.5, 0]
    torch.testing.assert_close(layer(torch.tensor([3.0, 1.0])), torch.tensor([5.5, 12.0]))


def test_gelu_differs_from_relu_below_zero() -> None:
    layer = FeedForward(3, 5, activation="gelu")
    assert (layer.activation(torch.tensor(-1.0)) < 0).item()


def test_unknown_activation_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'gelu'"):
        FeedForward(3, 5, activation="gleu")
