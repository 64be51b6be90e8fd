from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import attend
from attent.attention.backends import bands
from attent.attention.scores import SCORES, Additive


def outcome(tensors: list[Tensor], **arguments: Any) -> list[Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    context = attend(*leaves, **arguments, implementation="tiled")
    return [context.detach(), *torch.autograd.grad(context.square().sum(), leaves, materialize_grads=True)]


@pytest.mark.parametrize("name", SCORES)
def test_the_size_of_a_tile_does_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.randn(2, 3, length, 5, dtype=torch.float64) for length in (11, 13, 13)]
    arguments = {"score": SCORES[name].for_widths(5, 5, 3).double(), "mask": "causal", "dropout": 0.3, "seed": 2}
    expected = outcome(tensors, **arguments)
    for size in (1, 500, 1300, 2500):
        monkeypatch.setattr(bands, "TILE", size)
        torch.testing.assert_close(outcome(tensors, **arguments), expected)


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


@pytest.mark.parametrize(
    "score", ["dot", Additive(3, 3, 5), lambda query, key: query @ key.mT], ids=["dot", "additive", "own"]
)
def test_memory_is_linear_in_the_sequence(score: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 512)
    short, long = kept_for_the_backward(score, 128), kept_for_the_backward(score, 512)
    assert long <= 4.5 * short
    # far from 512² scores, and so is each tile on the way
    assert long < 512 * 512 / 4


def test_a_tile_is_all_that_is_held_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 2048)
    sizes: list[int] = []

    def recording(query: Tensor, key: Tensor) -> Tensor:
        scores = query @ key.transpose(-2, -1)
        sizes.append(scores.numel())
        return scores

    query, key, value = (torch.randn(257, 4, requires_grad=True) for _ in range(3))
    attend(query, key, value, score=recording, implementation="tiled").sum().backward()
    assert max(sizes) <= 2048
    # every tile once forward and once more for the backward, and six rows to see what the score does
    assert sum(sizes) == 2 * 257 * 257 + 6 * 257


def test_without_gradients_nothing_is_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 100)
    count = 0

    def counting(query: Tensor, key: Tensor) -> Tensor:
        nonlocal count
        count += query.shape[-2] * key.shape[-2]
        return query @ key.transpose(-2, -1)

    with torch.no_grad():
        attend(torch.randn(31, 2), torch.randn(37, 2), torch.randn(37, 2), score=counting, implementation="tiled")
    # but the five rows that tell how many numbers a pair takes
    assert count == (31 + 5) * 37
