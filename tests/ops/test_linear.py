from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attent.ops import native, onednn
from attent.ops.linear import _can_use_amx, project

HALF = torch.bfloat16


def layers(width: int, *wide: int, bias: bool = True) -> list[nn.Linear]:
    return [nn.Linear(width, one, bias=bias) for one in wide]


def projected(features: Tensor, some: list[nn.Linear]) -> tuple[Tensor, ...]:
    with torch.autocast("cpu", HALF):
        return project(features, *some)


def parameters(some: list[nn.Linear]) -> list[Tensor]:
    return [one for layer in some for one in layer.parameters()]


def error(found: Tensor, exact: Tensor) -> float:
    return ((found.double() - exact).abs().max() / exact.abs().max()).item()


@pytest.mark.needs_amx
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("wide", [(32,), (64, 32), (96, 32, 64), (32, 64, 96, 32)])
@pytest.mark.parametrize("shape", [(1, 64), (5, 31, 32), (3, 11, 96), (1153, 64), (2, 2069, 32)])
def test_agrees_with_the_formula(shape: tuple[int, ...], wide: tuple[int, ...], bias: bool) -> None:
    some = layers(shape[-1], *wide, bias=bias)
    features = torch.randn(shape).to(HALF).requires_grad_()
    slopes = [torch.randn(*shape[:-1], one).to(HALF) for one in wide]
    found = projected(features, some)
    assert [one.dtype for one in found] == [HALF] * len(wide)
    gradients = torch.autograd.grad(found, [features, *parameters(some)], slopes)
    exact = features.detach().double().requires_grad_()
    theirs = [layer.weight.detach().to(HALF).double().requires_grad_() for layer in some]
    shifts = [layer.bias.detach().double().requires_grad_() if bias else None for layer in some]
    right = [nn.functional.linear(exact, *pair) for pair in zip(theirs, shifts, strict=True)]
    of_parameters = [one for pair in zip(theirs, shifts, strict=True) for one in pair if one is not None]
    wanted = torch.autograd.grad(right, [exact, *of_parameters], [one.double() for one in slopes])
    for ours, one in zip(found, right, strict=True):
        assert error(ours, one) < 2**-8
    # four layers go three and one, whose shares are added in bfloat16
    assert error(gradients[0], wanted[0]) < (2**-8 if len(wide) < 4 else 2**-7)
    for ours, one in zip(gradients[1:], wanted[1:], strict=True):
        assert ours.dtype == torch.float32
        assert error(ours, one) < 2e-6


@pytest.mark.needs_amx
def test_where_nothing_serves_layers_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    some, features = layers(64, 96, 32), torch.randn(3, 7, 64)
    ours = projected(features, some)
    monkeypatch.setattr(native, "has_amx", lambda: False)
    for one, other in zip(projected(features, some), ours, strict=True):
        torch.testing.assert_close(one, other, atol=2**-8, rtol=2**-7)


@pytest.mark.parametrize("way", ["no autocast", "evaluation", "no gradients", "an odd width", "a hook", "float64"])
def test_elsewhere_each_layer_computes_its_own(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "prefers_onednn", lambda: False)
    layer = nn.Linear(64, 33 if way == "an odd width" else 32).train(way != "evaluation")
    features = torch.randn(5, 64)
    if way == "a hook":
        layer.register_forward_hook(lambda module, given, found: found.neg())
    if way == "float64":
        layer, features = layer.double(), features.double()
    with torch.autocast("cpu", HALF, enabled=way != "no autocast"), torch.set_grad_enabled(way != "no gradients"):
        assert not _can_use_amx(features, layer)
        assert torch.equal(project(features, layer)[0], layer(features))


@pytest.mark.needs_amx
def test_bits_do_not_depend_on_the_threads() -> None:
    some, features, before = (
        layers(64, 32, 96),
        torch.randn(2311, 64).to(HALF).requires_grad_(),
        torch.get_num_threads(),
    )
    found = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results = projected(features, some)
            gradients = torch.autograd.grad(results, [features, *parameters(some)], [one.detach() for one in results])
            found.append(torch.cat([one.float().flatten() for one in (*results, *gradients)]))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.needs_amx
def test_only_what_is_wanted_gets_a_gradient() -> None:
    (layer,) = layers(32, 64)
    layer.weight.requires_grad_(False)
    features = torch.randn(7, 32)
    projected(features, [layer])[0].float().sum().backward()
    assert layer.weight.grad is None and features.grad is None
    torch.testing.assert_close(layer.bias.grad, torch.full((64,), 7.0))


@pytest.mark.needs_amx
def test_nan_and_infinity_pass() -> None:
    (layer,) = layers(32, 32)
    features = torch.randn(40, 32)
    features[3, 5], features[33, 7] = torch.nan, torch.inf
    found = projected(features, [layer])[0]
    assert found.isnan().any(-1).nonzero().flatten().tolist() == [3]
    assert found[33].isinf().all()


@pytest.mark.needs_amx
def test_gradients_are_differentiable() -> None:
    some, features = layers(32, 32, 64), torch.randn(11, 32).to(HALF).requires_grad_()

    def second() -> tuple[Tensor, ...]:
        inputs = [features, *parameters(some)]
        first = torch.autograd.grad(
            sum(one.float().sin().sum() for one in projected(features, some)), inputs, create_graph=True
        )
        return torch.autograd.grad(sum(one.float().square().sum() for one in first), inputs)

    ours = second()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "has_amx", lambda: False)
        plain = second()
    for one, other in zip(ours, plain, strict=True):
        assert error(one, other.double()) < 0.02
