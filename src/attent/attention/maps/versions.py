"""Whether what a map was made of is still as it was."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from attent.attention.base import Mask, Side
from attent.attention.call import Call
from attent.errors import StaleMapError

Made = TypeVar("Made")


class Versions:
    """The tensors of a call, and how often each had been written to when this was made.

    PyTorch counts every change in place, through whichever view of the tensor. It does not count changes through `.data`, nor
    those of tensors made in inference mode.
    """

    def __init__(self, call: Call, query: Tensor, key: Side) -> None:
        found = [] if torch.compiler.is_compiling() else list(tensors_of(call, query, key))
        # a leaf has no graph to keep alive; of any other tensor a detached view shares the count
        self._counted = [
            (name, tensor if tensor.is_leaf else tensor.detach(), tensor._version) for name, tensor in found if not tensor.is_inference()
        ]

    def check(self) -> None:
        """Raise StaleMapError where one was written to since."""
        for name, tensor, version in self._counted:
            if tensor._version != version:
                raise StaleMapError(
                    f"{name} was changed in place after this map was made, so its weights are no longer to be had; "
                    "take map.keep() before the change, or attend again"
                )


def tensors_of(call: Call, query: Tensor, key: Side) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that the weights of a call depend on, with what it is called in an error."""
    yield "query", query
    yield from (("key", part) for part in key if part is not None)
    for name, part in (("score", call.score), ("position", call.position)):
        if part is not None:
            yield from ((f"{name}'s {own}", tensor) for own, tensor in (*part.named_parameters(), *part.named_buffers()))
    yield from (("mask", tensor) for tensor in _inside(call.mask))
    yield from (("normalizer", tensor) for tensor in _inside(call.normalizer))
    yield from (("weighting", tensor) for tensor in _inside(call.weighting))
    yield from ((name, tensor) for name, tensor in (("bias", call.bias), ("query_start", call.start)) if isinstance(tensor, Tensor))


def copied(call: Call, query: Tensor, key: Side) -> tuple[Call, Tensor, Side]:
    """The same with every tensor copied, cut off from the graph."""
    copies: dict[int, object] = {}
    for _, tensor in tensors_of(call, query, key):
        own = tensor.detach().clone()
        copies[id(tensor)] = nn.Parameter(own, requires_grad=False) if isinstance(tensor, nn.Parameter) else own

    def copy_of(part: Made) -> Made:
        return copy.deepcopy(part, copies)

    parts = {name: copy_of(getattr(call, name)) for name in ("score", "normalizer", "mask", "bias", "position", "start", "weighting")}
    return replace(call, **parts), copy_of(query), Side(copy_of(key.features), copy_of(key.bias), copy_of(key.origin))


def _inside(part: object) -> Iterator[Tensor]:
    """The tensors of a mask, a normalizer or a weighting, and of the masks that it joins."""
    for value in vars(part).values() if hasattr(part, "__dict__") else ():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, Tensor):
                yield item
            elif isinstance(item, Mask):
                yield from _inside(item)
