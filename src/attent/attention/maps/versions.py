"""Noticing that a tensor of a map was changed in place, and copying all of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from attent.attention.base import LoweredSide, Mask, Normalizer
from attent.attention.call import Call
from attent.errors import StaleMapError

T = TypeVar("T")


class Versions:
    """The tensors of a call and their version counters.

    PyTorch counts every change in place, through any view of the tensor, except changes through `.data` and changes of
    tensors made in inference mode.
    """

    def __init__(self, call: Call, query: Tensor, key: LoweredSide) -> None:
        tensors = [] if torch.compiler.is_compiling() else call_tensors(call, query, key)
        # a leaf has no graph to keep alive; for other tensors, a detached view shares the counter
        self._versions = [
            (name, tensor if tensor.is_leaf else tensor.detach(), tensor._version)
            for name, tensor in tensors
            if not tensor.is_inference()
        ]

    def check(self) -> None:
        """Raise StaleMapError if a tensor was changed since."""
        for name, tensor, version in self._versions:
            if tensor._version != version:
                raise StaleMapError(
                    f"{name} was changed in place after this map was made, so its weights are no longer to be had; "
                    "take map.keep() before the change, or attend again"
                )


def call_tensors(call: Call, query: Tensor, key: LoweredSide) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor that the weights of a call depend on, with its name for errors."""
    yield "query", query
    yield from (("key", part) for part in key if part is not None)
    for name, part in (("score", call.score), ("position", call.position)):
        if part is not None:
            yield from (
                (f"{name}'s {own}", tensor) for own, tensor in (*part.named_parameters(), *part.named_buffers())
            )
    for name, part in (("mask", call.mask), ("normalizer", call.normalizer), ("weighting", call.weighting)):
        yield from ((name, tensor) for tensor in _part_tensors(part))
    yield from (
        (name, tensor)
        for name, tensor in (("bias", call.bias), ("query_start", call.start))
        if isinstance(tensor, Tensor)
    )


def copy_call(call: Call, query: Tensor, key: LoweredSide) -> tuple[Call, Tensor, LoweredSide]:
    """Return the same with every tensor copied and detached."""
    copies: dict[int, object] = {}
    for _, tensor in call_tensors(call, query, key):
        own = tensor.detach().clone()
        copies[id(tensor)] = nn.Parameter(own, requires_grad=False) if isinstance(tensor, nn.Parameter) else own

    def copy_of(part: T) -> T:
        return copy.deepcopy(part, copies)

    parts = {
        name: copy_of(getattr(call, name))
        for name in ("score", "normalizer", "mask", "bias", "position", "start", "weighting")
    }
    return replace(call, **parts), copy_of(query), copy_of(key)


def _part_tensors(part: object) -> Iterator[Tensor]:
    """Yield the tensors of a mask, a normalizer or a weighting, and of the masks that a mask combines."""
    for value in vars(part).values() if hasattr(part, "__dict__") else ():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, Tensor):
                yield item
            elif isinstance(item, Mask | Normalizer):
                yield from _part_tensors(item)
