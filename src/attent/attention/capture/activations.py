"""Activations of attention heads in one run, and the contexts of a run that takes some of them from another run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from attent.attention.base import LoweredSide
from attent.attention.call import Prepared
from attent.attention.capture.intervene import ModelIntervention
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError

# What of a head one run may take from another: its context before W^O, its weights, its queries, keys or values.
Activation = Literal["output", "weights", "queries", "keys", "values"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)


class ActivationRecorder(ModelIntervention):
    """Record the contexts (B, H, T, Dv) and calls of a model's attention, by path, while it runs in this context.

    Args:
        model: the model.
        has_calls: whether to record queries, keys and values too.
    """

    def __init__(self, model: nn.Module, *, has_calls: bool) -> None:
        super().__init__(model)
        self._has_calls = has_calls
        self.contexts: dict[str, Tensor] = {}
        self.calls: dict[str, Prepared] = {}

    def concerns(self, module: nn.Module) -> bool:
        """Return True: every attention is recorded."""
        return True

    def apply(self, module: nn.Module, context: Tensor, prepare: Callable[[], Prepared]) -> Tensor:
        """Record a call and return its contexts unchanged."""
        path = self.paths[module]
        if path in self.contexts:
            raise ArgumentError(f"{path} attends more than once in one run, and it is not known in which call to patch")
        self.contexts[path] = context
        if self._has_calls:
            self.calls[path] = prepare()
        return context


class ContextChange(ModelIntervention):
    """Replace the contexts of attention modules while a model runs in this context.

    Args:
        model: the model.
        changes: for each path, a function of the contexts (B, H, T, Dv) and of a function that returns the call.
    """

    def __init__(
        self, model: nn.Module, changes: Mapping[str, Callable[[Tensor, Callable[[], Prepared]], Tensor]]
    ) -> None:
        super().__init__(model)
        self._changes = changes

    def concerns(self, module: nn.Module) -> bool:
        """Return whether contexts of this module are replaced."""
        return self.paths[module] in self._changes

    def apply(self, module: nn.Module, context: Tensor, prepare: Callable[[], Prepared]) -> Tensor:
        """Return the new contexts."""
        return self._changes[self.paths[module]](context, prepare)


def mixed_contexts(activation: Activation, own: Prepared, source: Prepared, position: int | None = None) -> Tensor:
    """Return the contexts (B, H, T, Dv) of a run in which every head takes an activation from another run.

    Keys and values are those that a query head reads, also if several heads share them.

    Args:
        activation: "weights", "queries", "keys" or "values".
        own: the call of the run.
        source: the call of the other run.
        position: the only query or key whose activation is taken; all if not given.
    """

    def chosen(name: Activation, own_side: Tensor, source_side: Tensor) -> Tensor:
        if activation != name:
            return own_side
        return source_side if name == "queries" else at_position(own_side, source_side, position)

    own_key, source_key = (call.repeat_kv_side(key) for call, _, key, _ in (own, source))
    own_value, source_value = (call.repeat_kv(value) for call, _, _, value in (own, source))
    if activation == "weights":
        call, query, key, value = source.call, source.query, source_key, own_value
    else:
        call, query = own.call, chosen("queries", own.query, source.query)
        key = LoweredSide(chosen("keys", own_key.features, source_key.features), own_key.bias, own_key.center)
        value = chosen("values", own_value, source_value)
    weights = AttentionMap(replace(call, key_heads=call.heads, axes=4), query, key).dense()
    return (weights.to(value.dtype) @ value).to(own.value.dtype)


def at_position(own: Tensor, source: Tensor, position: int | None) -> Tensor:
    """Return features (B, H, T, D) with those of one position, or of all, from another run."""
    if position is None:
        return source
    return own.index_copy(2, torch.tensor([position], device=own.device), source[:, :, position : position + 1])
