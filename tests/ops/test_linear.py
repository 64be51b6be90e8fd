from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attent.ops import native, onednn
from attent.ops.linear import _can_use_amx, project

HALF = torch.bfloat16


def make_layers(width: int, *wide: int, bias: bool = True) -> list[nn.Linear]:
    return [nn.Linear(width, item, bias=bias) for item in wide]


def projected(features: Tensor, linears: list[nn.Linear]) -> tuple[Tensor, ...]:
    with torch.autocast("cpu", HALF):
        return project(features, *linears)


def parameters(linears: list[nn.Linear]) -> list[Tensor]:
    return [parameter for layer in linears for parameter in layer.parameters()]


def error(actual: Tensor, exact: Tensor) -> float:
    return ((actual.double() - exact).abs().max() / exact.abs().max()).item()


@pytest.mark.needs_amx
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("wide", [(32,), (64, 32), (96, 32, 64), (32, 64, 96, 32)])
@pytest.mark.parametrize("shape", [(1, 64), (5, 31, 32), (3, 11, 96), (1153, 64), (2, 2069, 32)])
def test_agrees_with_the_formula(shape: tuple[int, ...], wide: tuple[int, ...], bias: bool) -> None:
    layers = make_layers(shape[-1], *wide, bias=bias)
    features = torch.randn(shape).to(HALF).requires_grad_()
    slopes = [torch.randn(*shape[:-1], item).to(HALF) for item in wide]
    actual = projected(features, layers)
    assert [tensor.dtype for tensor in actual] == [HALF] * len(wide)
    gradients = torch.autograd.grad(actual, [features, *parameters(layers)], slopes)
    exact = features.detach().double().requires_grad_()
    reference = [layer.weight.detach().to(HALF).double().requires_grad_() for layer in layers]
    shifts = [layer.bias.detach().double().requires_grad_() if bias else None for layer in layers]
    right = [nn.functional.linear(exact, *pair) for pair in zip(reference, shifts, strict=True)]
    of_parameters = [item for pair in zip(reference, shifts, strict=True) for item in pair if item is not None]
    expected = torch.autograd.grad(right, [exact, *of_parameters], [slope.double() for slope in slopes])
    for gradient, expected_item in zip(actual, right, strict=True):
        assert error(gradient, expected_item) < 2**-8
    # four layers go three and one, whose shares are added in bfloat16
    assert error(gradients[0], expected[0]) < (2**-8 if len(wide) < 4 else 2**-7)
    for gradient, expected_item in zip(gradients[1:], expected[1:], strict=True):
        assert gradient.dtype == torch.float32
        assert error(gradient, expected_item) < 2e-6


@pytest.mark.needs_amx
def test_where_nothing_serves_layers_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, features = make_layers(64, 96, 32), torch.randn(3, 7, 64)
    actual = projected(features, layers)
    monkeypatch.setattr(native, "has_amx", lambda: False)
    for first, second in zip(projected(features, layers), actual, strict=True):
        torch.testing.assert_close(first, second, atol=2**-8, rtol=2**-7)


@pytest.mark.parametrize("way", ["no autocast", "evaluation", "no gradients", "an odd width", "a hook", "float64"])
def test_elsewhere_each_layer_computes_its_own(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "prefers_onednn", lambda: False)
    layer = nn.Linear(64, 33 if way == "an odd width" else 32).train(way != "evaluation")
    features = torch.randn(5, 64)
    if way == "a hook":
        layer.register_forward_hook(lambda module, inputs, output: output.neg())
    if way == "float64":
        layer, features = layer.double(), features.double()
    with torch.autocast("cpu", HALF, enabled=way != "no autocast"), torch.set_grad_enabled(way != "no gradients"):
        assert not _can_use_amx(features, layer)
        assert torch.equal(project(features, layer)[0], layer(features))


@pytest.mark.needs_amx
def test_bits_do_not_depend_on_the_threads(assert_same_bits: Callable[..., None]) -> None:
    layers, features = make_layers(64, 32, 96), torch.randn(2311, 64).to(HALF).requires_grad_()

    def compute() -> tuple[Tensor, ...]:
        results = projected(features, layers)
        slopes = [tensor.detach() for tensor in results]
        return *results, *torch.autograd.grad(results, [features, *parameters(layers)], slopes)

    assert_same_bits(compute)


@pytest.mark.needs_amx
def test_only_what_is_wanted_gets_a_gradient() -> None:
    (layer,) = make_layers(32, 64)
    layer.weight.requires_grad_(False)
    features = torch.randn(7, 32)
    projected(features, [layer])[0].float().sum().backward()
    assert layer.weight.grad is None and features.grad is None
    torch.testing.assert_close(layer.bias.grad, torch.full((64,), 7.0))


@pytest.mark.needs_amx
def test_nan_and_infinity_pass() -> None:
    (layer,) = make_layers(32, 32)
    features = torch.randn(40, 32)
    features[3, 5], features[33, 7] = torch.nan, torch.inf
    result = projected(features, [layer])[0]
    assert result.isnan().any(-1).nonzero().flatten().tolist() == [3]
    assert result[33].isinf().all()


@pytest.mark.needs_amx
def test_gradients_are_differentiable() -> None:
    layers, features = make_layers(32, 32, 64), torch.randn(11, 32).to(HALF).requires_grad_()

    def second() -> tuple[Tensor, ...]:
        inputs = [features, *parameters(layers)]
        first = torch.autograd.grad(
            sum(tensor.float().sin().sum() for tensor in projected(features, layers)), inputs, create_graph=True
        )
        return torch.autograd.grad(sum(tensor.float().square().sum() for tensor in first), inputs)

    actual = second()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "has_amx", lambda: False)
        plain = second()
    for left, right_item in zip(actual, plain, strict=True):
        assert error(left, right_item.double()) < 0.02
