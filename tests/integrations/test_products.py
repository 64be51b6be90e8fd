"""Float32 products of linear layers by oneDNN, in any model: `register(linear=True)`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.ops import onednn

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this PyTorch was built without oneDNN"
)


class Products:
    """How many products reached oneDNN."""

    count = 0


def inputs(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> Products:
    """Count the products that reach oneDNN, which is preferred whatever the processor, also for small ones."""
    count, product = Products(), onednn.product

    def counted(*args: Any) -> Tensor:
        count.count += 1
        return product(*args)

    monkeypatch.setattr(onednn, "product", counted)
    monkeypatch.setattr(onednn, "prefers_onednn", lambda: True)
    monkeypatch.setattr(onednn, "MULTIPLICATIONS", 1)
    return count


def layer_and_gradients(layer: nn.Module, *shape: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    (features,) = inputs(shape, dtype=dtype)
    output = layer(features)
    direction = torch.linspace(-1, 1, output.numel()).view_as(output).to(output)
    return [output, *torch.autograd.grad(output, [features, *layer.parameters()], direction)]


@pytest.mark.parametrize(("shape", "has_bias"), [((5, 7), True), ((3, 11, 7), False), ((2, 3, 5, 7), True)])
def test_linear_layers_come_along(active: Any, products: Products, shape: tuple[int, ...], has_bias: bool) -> None:
    layer = nn.Linear(7, 13, bias=has_bias)
    expected = layer_and_gradients(layer, *shape)
    with active(linear=True):
        actual = layer_and_gradients(layer, *shape)
        assert products.count == 3
        with torch.inference_mode():
            layer(torch.randn(*shape))
        assert products.count == 4
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    assert [gradient.stride() for gradient in actual] == [gradient.stride() for gradient in expected]
    assert all(map(torch.equal, layer_and_gradients(layer, *shape), expected))
    assert products.count == 4


@pytest.mark.filterwarnings("ignore:.torch.jit")  # PyTorch's own forward mode
def test_second_derivatives_and_transforms_of_linear_layers(active: Any, products: Products) -> None:
    def second(features: Tensor, weight: Tensor) -> list[Tensor]:
        (gradient,) = torch.autograd.grad(F.linear(features, weight).sin().sum(), features, create_graph=True)
        return [*torch.autograd.grad(gradient.square().sum(), [features, weight])]

    def derivatives() -> list[Tensor]:
        features, weight = inputs((5, 7), (3, 7))
        rows = torch.vmap(lambda row: F.linear(row, weight))
        tangents = torch.func.jvp(lambda tensor: F.linear(tensor, weight), (features.detach(),), (torch.ones(5, 7),))
        return [*second(features, weight), rows(features), *tangents]

    expected = derivatives()
    with active(linear=True):
        actual = derivatives()
    assert products.count > 5
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "case", ["float64", "bfloat16", "empty", "switched off", "small", "autocast", "scaled", "bias of rows"]
)
def test_other_products_are_those_of_pytorch_bit_for_bit(
    active: Any, products: Products, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype = {"float64": torch.float64, "bfloat16": torch.bfloat16}.get(case, torch.float32)
    layer = nn.Linear(7, 13, dtype=dtype)
    if case == "small":
        monkeypatch.setattr(onednn, "MULTIPLICATIONS", 2**20)
    if case == "switched off":
        monkeypatch.setattr(type(torch.backends.mkldnn), "enabled", False)

    def run() -> list[Tensor]:
        if case in ("scaled", "bias of rows"):
            bias = torch.linspace(-1, 1, 5)[:, None] if case == "bias of rows" else layer.bias
            return [torch.addmm(bias, inputs((5, 7))[0], layer.weight.T, alpha=0.5 if case == "scaled" else 1)]
        with torch.autocast("cpu", torch.bfloat16, enabled=case == "autocast"):
            return layer_and_gradients(layer, 0 if case == "empty" else 5, 7, dtype=dtype)

    expected = run()
    with active(linear=True):
        actual = run()
    assert not products.count
    assert all(map(torch.equal, actual, expected))


@pytest.mark.parametrize("linear", [True, False])
def test_products_stay_pytorchs_where_it_is_faster_or_nobody_asked(
    active: Any, products: Products, linear: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "prefers_onednn", lambda: not linear)
    layer = nn.Linear(7, 13)
    expected = layer_and_gradients(layer, 5, 7)
    with active(linear=linear):
        assert all(map(torch.equal, layer_and_gradients(layer, 5, 7), expected))
    assert not products.count


def test_a_model_trains_with_both(active: Any, products: Products, models: Any) -> None:
    model, arguments = models.gpt2("sdpa")
    gradients: list[list[Tensor]] = []
    for context in (nullcontext(), active(linear=True)):
        model.zero_grad()
        with context:
            model(**arguments)[0].square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    assert products.count
    for actual, expected in zip(*reversed(gradients), strict=True):
        assert (actual - expected).abs().max() <= 1e-4 * max(expected.abs().max().item(), 1.0)
