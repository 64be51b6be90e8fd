"""Tiles of any score: their gradients and second derivatives, and what they hold and compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention import attend
from attent.attention.backends import bands, tiled
from attent.attention.masks import Selected, Window
from attent.attention.positions import RelativeBias
from attent.attention.scores import SCORES, Additive, Gated, Gaussian

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


def product(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT


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
def test_second_derivatives(name: str) -> None:
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
        score = lambda query, key, w=before: (query * w) @ key.mT  # noqa: E731
        context = attend(*leaves, score=score, implementation=implementation)
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
    captured = torch.randn(4, dtype=torch.float64, requires_grad=True)
    context = attend(*make_inputs(), score=lambda q, k: q @ k.mT * captured.sum(), implementation="tiled")
    with torch.no_grad():
        captured.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        context.sum().backward()


@pytest.mark.parametrize("transform", ["vmap", "jvp", "grad"])
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_functional_transforms_go_the_long_way(transform: str) -> None:
    query, key, value = (tensor.detach() for tensor in make_inputs())

    def derived(implementation: str) -> Tensor:
        def work(query: Tensor) -> Tensor:
            return attend(query, key, value, score=difference, implementation=implementation)

        if transform == "vmap":
            return torch.func.vmap(work)(torch.stack((query, query.sin())))
        if transform == "jvp":
            return torch.func.jvp(work, (query,), (query.cos(),))[1]
        return torch.func.grad(lambda query: work(query).sin().sum())(query)

    torch.testing.assert_close(derived("tiled"), derived("reference"))


@pytest.mark.parametrize("name", SCORES)
def test_the_size_of_a_tile_does_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.randn(2, 3, length, 5, dtype=torch.float64, requires_grad=True) for length in (7, 8, 8)]
    arguments = {"score": SCORES[name].for_widths(5, 5, 3).double(), "mask": "causal", "dropout": 0.3, "seed": 2}
    results = []
    for size in (2**17, 1, 200, 600):
        monkeypatch.setattr(bands, "TILE", size)
        context = attend(*tensors, **arguments, implementation="tiled")
        gradients = torch.autograd.grad(context.square().sum(), tensors, materialize_grads=True)
        results.append([context.detach(), *gradients])
        torch.testing.assert_close(results[-1], results[0])


def kept_for_the_backward(score: Any, length: int) -> int:
    """How many numbers autograd keeps between forward and backward, each storage counted once."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    query, key, value = (torch.randn(1, 1, length, 3, requires_grad=True) for _ in range(3))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        context = attend(query, key, value, score=score, mask="causal", implementation="tiled")
    assert context.requires_grad
    return sum(storages.values())


@pytest.mark.parametrize("score", ["dot", Additive(3, 3, 5), product], ids=["dot", "additive", "own"])
def test_memory_is_linear_in_the_sequence(score: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 512)
    short, long = kept_for_the_backward(score, 64), kept_for_the_backward(score, 256)
    assert long <= 4.5 * short
    # far from 256² scores, and so is each tile on the way
    assert long < 256 * 256 / 4


def test_a_tile_is_all_that_is_held_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 2048)
    sizes: list[int] = []

    def recording(query: Tensor, key: Tensor) -> Tensor:
        sizes.append(query.shape[-2] * key.shape[-2])
        return product(query, key)

    query, key, value = (torch.randn(257, 4, requires_grad=True) for _ in range(3))
    attend(query, key, value, score=recording, implementation="tiled").sum().backward()
    assert max(sizes) <= 2048
    # every tile once forward and once more for the backward, and a row to see what the score does
    assert sum(sizes) == 2 * 257 * 257 + 257
    sizes.clear()
    with torch.no_grad():
        attend(query, key, value, score=recording, implementation="tiled")
    assert sum(sizes) == 257 * 257
