"""A decoder's state as a list of named tensors, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

S = TypeVar("S")


def flatten_state(state: Any, name: str = "state") -> list[tuple[str, Tensor]]:
    """Every tensor in a state, in order, under the path that leads to it; a whole number as a tensor (1,).

    Args:
        state: dataclasses and tuples, named or not, of tensors, whole numbers and None.
        name: of the state itself.
    """
    if state is None:
        return []
    if isinstance(state, Tensor):
        return [(name, state)]
    if isinstance(state, int | torch.SymInt):
        return [(name, torch.full((1,), cast(int, state), dtype=torch.int64))]
    return [found for field, value in _parts(state) for found in flatten_state(value, f"{name}.{field}")]


def unflatten_state(like: S, tensors: Iterator[Tensor]) -> S:
    """A state of the same structure with other tensors, in the order of `tensors_of`."""
    if like is None:
        return like
    if isinstance(like, Tensor | int | torch.SymInt):
        return next(tensors)  # pyright: ignore[reportReturnType]
    parts = [unflatten_state(value, tensors) for _, value in _parts(like)]
    return like.__class__(parts) if type(like) is tuple else like.__class__(*parts)


def _parts(state: Any) -> list[tuple[str, Any]]:
    if dataclasses.is_dataclass(state):
        return [(field.name, getattr(state, field.name)) for field in dataclasses.fields(state)]
    return list(zip(getattr(state, "_fields", map(str, range(len(state)))), state, strict=True))
