from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention import attend
from attent.attention.backends import bands, tiled
from attent.attention.masks import Selected, Window
from attent.attention.positions import RelativeBias
from attent.attention.scores import Additive, Gated, Gaussian

LAYER = nn.Linear(4, 4).double()
CAPTURED = torch.randn(4, dtype=torch.float64, requires_grad=True)


def difference(query: Tensor, key: Tensor) -> Tensor:
    return -(LAYER(query)[..., :, None, :] - key[..., None, :, :] * CAPTURED).abs().sum(-1)


CASES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "own": ({"score": difference}, [*LAYER.parameters(), CAPTURED]),
    "additive": ({"score": (additive := Additive(4, 4, 5).double())}, list(additive.parameters())),
    "gated": ({"score": (gated := Gated(4, 4).double()), "mask": Window(3, 0)}, list(gated.parameters())),
    "key bias": (
        {"score": (gaussian := Gaussian(nn.Parameter(torch.ones(4).double()))), "mask": "causal"},
        [gaussian.sigma],
    ),
    "position": ({"position": (position := RelativeBias(3).double())}, [position.table]),
    "gathered": ({"mask": Selected(torch.randint(0, 13, (11, 2)))}, []),
    "bias": ({"bias": (bias := torch.randn(1, 3, 11, 13, dtype=torch.float64, requires_grad=True))}, [bias]),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 150)
    monkeypatch.setattr(bands, "LEAST", 20)
    monkeypatch.setattr(bands, "GATHERED_ROWS", 2)
    with torch.no_grad():
        position.table.normal_()


def make_inputs() -> list[Tensor]:
    return [torch.randn(2, 3, length, 4, dtype=torch.float64, requires_grad=True) for length in (11, 13, 13)]


@pytest.mark.parametrize("name", CASES)
def test_gradients_reach_everything_in_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, besides = CASES[name]
    leaves, outcomes = [*make_inputs(), *besides], []
    up = torch.randn(2, 3, 11, 4, dtype=torch.float64)
    for implementation in ("reference", "tiled"):
        if implementation == "tiled":
            # the short way must be the one that is taken
            monkeypatch.setattr(tiled.Tiles, "checkpointed_context", None)
        context = attend(*leaves[:3], **arguments, implementation=implementation)
        outcomes.append([context, *torch.autograd.grad(context, leaves, up)])
    torch.testing.assert_close(*outcomes)


@pytest.mark.parametrize("name", ["own", "additive", "key bias", "gathered"])
def test_second_derivatives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, besides = CASES[name]
    leaves, results = [*make_inputs(), *besides], []
    for implementation in ("reference", "tiled"):
        context = attend(*leaves[:3], **arguments, implementation=implementation)
        first = torch.autograd.grad(context.sin().sum(), leaves, create_graph=True)
        results.append(torch.autograd.grad(sum(tensor.square().sum() for tensor in first), leaves))
    torch.testing.assert_close(*results)


def throwing(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT * torch.rand(query.shape[0], 1, 1, 1, dtype=query.dtype)


def test_a_captured_intermediate_and_dice_take_the_long_way() -> None:
    leaves = make_inputs()
    weight = torch.randn(4, dtype=torch.float64, requires_grad=True)
    results = []
    for implementation in ("reference", "tiled"):
        before = weight.exp()
        context = attend(
            *leaves, score=lambda query, key, w=before: (query * w) @ key.mT, implementation=implementation
        )
        results.append(torch.autograd.grad(context.sin().sum(), [*leaves, before]))
    torch.testing.assert_close(*results)
    # a second computation throws what the first one did: the gradient is that of the result
    torch.manual_seed(3)
    context = attend(*leaves, score=throwing, implementation="tiled")
    torch.manual_seed(3)
    moved = attend(leaves[0], leaves[1], leaves[2] + 1e-6, score=throwing, implementation="tiled")
    (gradient,) = torch.autograd.grad(context.sum(), leaves[2])
    torch.testing.assert_close((moved - context).sum() / 1e-6, gradient.sum(), rtol=1e-5, atol=1e-5)


def test_only_what_is_wanted_is_computed() -> None:
    query, key, value = make_inputs()
    for leaves in ([query], [key], [value], [query, value]):
        inputs = [
            tensor if any(tensor is leaf for leaf in leaves) else tensor.detach() for tensor in (query, key, value)
        ]
        expected, actual = (
            torch.autograd.grad(attend(*inputs, score=difference, implementation=name).sin().sum(), leaves)
            for name in ("reference", "tiled")
        )
        torch.testing.assert_close(actual, expected)


def test_a_tensor_changed_before_the_backward_is_noticed() -> None:
    query, key, value = make_inputs()
    context = attend(query, key, value, score=lambda q, k: q @ k.mT * CAPTURED.sum(), implementation="tiled")
    with torch.no_grad():
        CAPTURED.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        context.sum().backward()


@pytest.mark.parametrize("transform", ["vmap", "jvp", "grad"])
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_functional_transforms_go_the_long_way(transform: str) -> None:
    tensors = [tensor.detach() for tensor in make_inputs()]

    def work(implementation: str) -> Callable[[Tensor], Tensor]:
        return lambda query: attend(query, *tensors[1:], score=difference, implementation=implementation)

    if transform == "vmap":
        batch = torch.randn(2, *tensors[0].shape, dtype=torch.float64)
        actual, expected = (torch.func.vmap(work(name))(batch) for name in ("tiled", "reference"))
    elif transform == "jvp":
        actual, expected = (
            torch.func.jvp(work(name), (tensors[0],), (tensors[0].cos(),))[1] for name in ("tiled", "reference")
        )
    else:
        actual, expected = (
            torch.func.grad(lambda query, name=name: work(name)(query).sin().sum())(tensors[0])
            for name in ("tiled", "reference")
        )
    torch.testing.assert_close(actual, expected)
