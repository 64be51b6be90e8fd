import copy

import pytest
import torch
from torch import Tensor

from attent.errors import UnknownNameError
from attent.layers.feed_forward import FeedForward
from attent.ops import native


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


def test_silu_is_x_times_its_sigmoid() -> None:
    layer = FeedForward(3, 5, activation="silu")
    torch.testing.assert_close(
        layer.activation(torch.tensor([0.0, 1.0, -2.0])), torch.tensor([0.0, 0.731059, -0.238406])
    )


def test_unknown_activation_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'gelu'"):
        FeedForward(3, 5, activation="gleu")


@pytest.mark.needs_amx
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("shape", [(1, 32), (3, 47, 64), (1031, 96)])
def test_relu_within_the_product_is_as_exact_as_the_layers(shape: tuple[int, ...], twice: bool) -> None:
    layer, value = FeedForward(shape[-1], 64), torch.randn(shape).bfloat16()
    for first in layer.parameters():
        torch.nn.init.normal_(first, std=0.2)
        first.data = first.data.bfloat16().float()

    def results(layer: FeedForward, features: Tensor) -> list[Tensor]:
        features = features.detach().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=features.dtype == torch.bfloat16):
            output = layer(features)
        inputs = [features, *layer.parameters()]
        gradients = torch.autograd.grad(output.to(torch.float64).sin().sum(), inputs, create_graph=twice)
        if twice:
            gradients = torch.autograd.grad(sum(gradient.double().square().sum() for gradient in gradients), inputs)
        return [output, *gradients]

    actual = results(layer, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "has_amx", lambda: False)
        plain, exact = results(layer, value), results(copy.deepcopy(layer).double(), value.double())
    for first, second, right in zip(actual, plain, exact, strict=True):
        assert first.dtype == second.dtype
        assert (first - right).norm() <= 1.2 * (second - right).norm() + 1e-3 * right.norm()


@pytest.mark.needs_amx
def test_relu_within_the_product_keeps_nan() -> None:
    layer, features = FeedForward(32, 32), torch.randn(5, 32)
    features[2, 3] = torch.nan
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(features)
    assert output.isnan().any(-1).tolist() == [False, False, True, False, False]
