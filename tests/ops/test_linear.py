"""Layers by the processor's matrix tiles; where it has none, PyTorch stands in for the library's three functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.ops import native, onednn
from attent.ops.linear import _can_use_amx, _is_tileable, feed_forward, project

HALF = torch.bfloat16


def by_tiles(name: str, tensors: tuple[Any, ...], *numbers: int) -> None:
    """Compute what the library does from the same tensors and sizes; any it does not expect fail."""
    sizes = [kind is native.POINTER for kind in native.SIGNATURES[name]]
    assert (len(tensors), len(numbers)) == (sizes.count(True), sizes.count(False))
    first = tensors[0].flatten(0, -2).float()
    assert numbers[0] == len(first)
    if name == "attent_linear_weight_gradients":
        _, features, dweight, dbias = tensors
        assert numbers[1:] == dweight.shape
        torch.mm(first.T, features.flatten(0, -2).float(), out=dweight)
        if dbias is not None:
            torch.sum(first, 0, out=dbias)
        return
    if name == "attent_linear":
        weights = tensors[1::3]
        for weight, bias, result in zip(weights, tensors[2::3], tensors[3::3], strict=True):
            if weight is not None:
                output = F.linear(first, weight.to(HALF).float(), bias)
                result.copy_((output.relu() if numbers[-1] else output).view_as(result))
        assert numbers[1] == first.shape[1]
    else:
        *operands, inputs, dinputs = tensors
        weights, doutputs = operands[1::2], [part for part in operands[::2] if part is not None]
        total = sum(part.float() @ weight.to(HALF).float() for part, weight in zip(doutputs, weights, strict=False))
        dinputs.copy_(total if inputs is None else total.where(inputs > 0, 0.0))
        assert numbers[-1] == dinputs.shape[-1]
    assert [*numbers[-4:-1]] == [0 if weight is None else len(weight) for weight in weights]


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    if not native.has_amx():
        monkeypatch.setattr(native, "has_amx", lambda: True)
        monkeypatch.setattr(native, "run", by_tiles)


def make_layers(width: int, *wide: int, bias: bool = True) -> list[nn.Linear]:
    return [nn.Linear(width, item, bias=bias) for item in wide]


def projected(features: Tensor, linears: list[nn.Linear]) -> tuple[Tensor, ...]:
    with torch.autocast("cpu", HALF):
        return project(features, *linears)


def parameters(linears: list[nn.Linear]) -> list[Tensor]:
    return [parameter for layer in linears for parameter in layer.parameters()]


def error(actual: Tensor, exact: Tensor) -> float:
    return ((actual.double() - exact).abs().max() / exact.abs().max()).item()


@pytest.mark.needs_native
@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("shape", "wide"),
    [
        ((1, 64), (32,)),
        ((5, 31, 32), (64, 32)),
        ((3, 11, 96), (96, 32, 64)),
        ((1153, 64), (32, 64, 96, 32)),
        ((2, 2069, 32), (32,)),
    ],
)
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
    right = [F.linear(exact, *pair) for pair in zip(reference, shifts, strict=True)]
    of_parameters = [item for pair in zip(reference, shifts, strict=True) for item in pair if item is not None]
    expected = torch.autograd.grad(right, [exact, *of_parameters], [slope.double() for slope in slopes])
    for gradient, expected_item in zip(actual, right, strict=True):
        assert error(gradient, expected_item) < 2**-8
    # four layers go three and one, whose shares are added in bfloat16
    assert error(gradients[0], expected[0]) < (2**-8 if len(wide) < 4 else 2**-7)
    for gradient, expected_item in zip(gradients[1:], expected[1:], strict=True):
        assert gradient.dtype == torch.float32
        assert error(gradient, expected_item) < 2e-6


@pytest.mark.needs_native
@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("bias", [True, False])
def test_a_feed_forward_network_and_its_derivatives_are_those_of_plain_layers(bias: bool) -> None:
    (widen,), (narrow,) = make_layers(32, 96, bias=bias), make_layers(96, 64, bias=bias)
    features = torch.randn(5, 7, 32).to(HALF).requires_grad_()
    leaves = [features, *parameters([widen, narrow])]
    results: list[list[Tensor]] = []
    for has_tiles in (True, False):
        with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", HALF):
            if not has_tiles:
                patch.setattr(native, "has_amx", lambda: False)
            output = feed_forward(features, widen, narrow, F.relu)
            assert ("_FeedForward" in type(output.grad_fn).__name__) == has_tiles
        direction = torch.linspace(-1, 1, output.numel()).view_as(output).to(HALF)
        first = torch.autograd.grad(output, leaves, direction, retain_graph=True)
        again = torch.autograd.grad(output.float().sin().sum(), leaves[:2], create_graph=True)
        second = torch.autograd.grad(sum(tensor.float().square().sum() for tensor in again), leaves[:2])
        results.append([output, *first, *second])
    for actual, expected in zip(*results, strict=True):
        assert error(actual, expected.double()) < 0.02


@pytest.mark.needs_native
@pytest.mark.usefixtures("tiles")
def test_layers_up_to_a_size_are_computed_by_tiles() -> None:
    with torch.device("meta"):
        sizes = [nn.Linear(1024, 1024), nn.Linear(1024, 1056)]
    with torch.no_grad():
        assert [_is_tileable(layer.to_empty(device="cpu")) for layer in sizes] == [True, False]


@pytest.mark.parametrize("way", ["no autocast", "evaluation", "no gradients", "an odd width", "a hook", "float64"])
@pytest.mark.usefixtures("tiles")
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


@pytest.mark.needs_native
@pytest.mark.usefixtures("tiles")
def test_only_what_is_wanted_gets_a_gradient() -> None:
    (layer,) = make_layers(32, 64)
    layer.weight.requires_grad_(False)
    features = torch.randn(7, 32, requires_grad=True)
    projected(features, [layer])[0].float().sum().backward()
    assert layer.weight.grad is None and features.grad is not None
    assert error(features.grad, layer.weight.double().sum(0).expand(7, 32)) < 2**-7
    torch.testing.assert_close(layer.bias.grad, torch.full((64,), 7.0))


@pytest.mark.needs_amx
def test_nan_and_infinity_pass() -> None:
    (layer,) = make_layers(32, 32)
    features = torch.randn(40, 32)
    features[3, 5], features[33, 7] = torch.nan, torch.inf
    result = projected(features, [layer])[0]
    assert result.isnan().any(-1).nonzero().flatten().tolist() == [3]
    assert result[33].isinf().all()


@pytest.mark.needs_native
@pytest.mark.usefixtures("tiles")
def test_gradients_are_differentiable() -> None:
    layers, features = make_layers(32, 32, 64), torch.randn(11, 32).to(HALF).requires_grad_()
    inputs = [features, *parameters(layers)]

    def second() -> tuple[Tensor, ...]:
        total = sum(tensor.float().sin().sum() for tensor in projected(features, layers))
        first = torch.autograd.grad(total, inputs, create_graph=True)
        return torch.autograd.grad(sum(tensor.float().square().sum() for tensor in first), inputs)

    actual = second()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "has_amx", lambda: False)
        plain = second()
    for left, right_item in zip(actual, plain, strict=True):
        assert error(left, right_item.double()) < 0.02
