"""Active interventions, and the contexts of the heads that they change.

The model computes every head as before; the contexts of changed heads are then recomputed and replace the model's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from types import FrameType
from typing import Literal

import torch
from torch import Tensor, nn

from attent.attention import reference
from attent.attention.backends.bands import Band, Lowered, lower_sides, split_into_bands
from attent.attention.backends.tiled import Tiles
from attent.attention.base import LoweredSide, Pairs
from attent.attention.call import Call, Prepared
from attent.errors import ArgumentError, ShapeError
from attent.ops.dropout import keep_mask
from attent.ops.eligibility import without_autocast

# New rows (B, n, Tk) of a head's weights from n of its rows.
RowFunction = Callable[[Tensor], Tensor]
# The replacement for a head's context: zero, the mean of the values that it may see, one context (Dv,) for all queries,
# or the mix by other weights.
HeadChange = Literal["zero", "uniform"] | Tensor | RowFunction
# A bias this far below the largest in its row hides a key: its weight is e⁻¹⁰⁰⁰ times the other's, which is 0 in every
# type.
HIDDEN = 1000.0


class Intervention(ABC):
    """Base class for everything that reads or replaces the contexts of a model's heads.

    Args:
        paths: every module of the model with its path.
    """

    def __init__(self, paths: Mapping[nn.Module, str]) -> None:
        self.paths = paths

    @abstractmethod
    def concerns(self, module: nn.Module) -> bool:
        """Return whether the contexts that this module of the model computes are read or replaced."""

    @abstractmethod
    def apply(self, module: nn.Module, context: Tensor, prepare: Callable[[], Prepared]) -> Tensor:
        """Return the contexts (B, H, Tq, Dv) that replace the module's own; `prepare` returns its call."""


INTERVENTIONS: list[Intervention] = []


def running_modules(frame: FrameType | None) -> Iterator[nn.Module]:
    """Yield the modules whose methods are running, innermost first."""
    while frame is not None:
        first = first_argument(frame)
        if isinstance(first, nn.Module):
            yield first
        frame = frame.f_back


def first_argument(frame: FrameType) -> object:
    """Return the first argument of a running function: the module, if it is a module's method."""
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


def is_intervened(modules: Iterable[nn.Module]) -> bool:
    """Return whether an intervention concerns one of these modules; compiled paths that hide contexts then decline."""
    is_on = not torch.compiler.is_compiling() and bool(INTERVENTIONS)
    return is_on and any(intervention.concerns(module) for module in modules for intervention in INTERVENTIONS)


def concerned(modules: Iterable[nn.Module]) -> list[tuple[Intervention, nn.Module]]:
    """Return the interventions that concern a call, each with the innermost running module of its model.

    The call belongs to that module.

    Args:
        modules: the running modules, innermost first.
    """
    modules = list(modules)
    owners = [
        (intervention, next(filter(intervention.paths.__contains__, modules), None)) for intervention in INTERVENTIONS
    ]
    return [
        (intervention, module)
        for intervention, module in owners
        if module is not None and intervention.concerns(module)
    ]


def change_context(modules: Iterable[nn.Module], context: Tensor, prepare: Callable[[], Prepared]) -> Tensor:
    """Apply every intervention on a call, in the order of entry, and return its contexts (B, H, Tq, Dv).

    Args:
        modules: the running modules, innermost first.
        context: the model's own contexts.
        prepare: returns the call, with its values.
    """
    prepare = cache(prepare)
    for intervention, module in concerned(modules):
        with without_autocast(context.device):
            context = intervention.apply(module, context, prepare)
    return context


def change_heads(context: Tensor, changes: Mapping[int, HeadChange], prepare: Callable[[], Prepared]) -> Tensor:
    """Return the contexts (B, H, Tq, Dv) with those of some heads changed and the others bit-identical.

    Raises:
        ShapeError: a mean differs in width from the contexts, or a function returns rows of a different shape.
    """
    heads = torch.tensor([*changes], device=context.device)
    contexts = [_changed(context[:, head], head, change, prepare) for head, change in changes.items()]
    return context.index_copy(1, heads, torch.stack(contexts, 1))


def _changed(context: Tensor, head: int, change: HeadChange, prepare: Callable[[], Prepared]) -> Tensor:
    """Return the new context (B, Tq, Dv) of one head."""
    if isinstance(change, Tensor):
        if change.shape != context.shape[-1:]:
            raise ShapeError(
                f"the mean of head {head} must be (Dv,) = ({context.shape[-1]},), got {tuple(change.shape)}"
            )
        return change.to(context).expand_as(context)
    if change == "zero" or not context.numel():
        return torch.zeros_like(context)
    mix = _HeadMix(prepare(), head)
    return mix.context(mix.uniform_weights if change == "uniform" else partial(mix.weights_by, change)).to(
        context.dtype
    )


class _HeadMix:
    """The mix of a head's values by new weights, computed by tiles of rows.

    Args:
        prepared: the call and its tensors.
        head: the index of the head.
    """

    def __init__(self, prepared: Prepared, head: int) -> None:
        self.call, self.head = prepared.call, head
        query, key, value = lower_sides(*prepared)
        # a part that differs between heads is computed for all of them, and this head selected from the result
        call, is_whole = self.call, _has_parts_of_heads(self.call)
        self.own = 0 if not is_whole else head
        query, key = (side if is_whole else side.map(lambda part: part[:, head : head + 1]) for side in (query, key))
        self.lowered = Lowered(query, key, value[:, head : head + 1])
        bias = call.bias if is_whole or call.bias is None or call.bias.shape[1] == 1 else call.bias[:, head : head + 1]
        heads = call.heads if is_whole else 1
        # the mask comes from the whole call
        self.part = replace(call, heads=heads, key_heads=heads, bias=bias, mask=None)

    def context(self, new_weights: Callable[[Pairs, LoweredSide, LoweredSide], Tensor]) -> Tensor:
        """Return the mix (B, Tq, Dv), given a function that returns the weights (B, n, Tk) of a tile.

        The function takes a tile's pairs, queries and keys.
        """
        call = self.call

        def tile(query: LoweredSide, key: LoweredSide, value: Tensor, band: Band) -> Tensor:
            pairs = call.pairs(*band.pairs_of(call))
            weights = new_weights(pairs, query, key)
            if call.dropout and call.seed is not None:
                keep = keep_mask(pairs.query_index, pairs.key_index, call.heads, call.batch, call.dropout, call.seed)
                weights = weights * keep[:, self.head] / (1.0 - call.dropout)
            return weights[:, None] @ value

        parts = split_into_bands(self.part)
        tiles = Tiles(replace(self.part, heads=1, key_heads=1, dtype=call.accumulation_dtype), parts, tile)
        is_single = len(parts) == 1
        return (tiles.context(self.lowered, parts[0]) if is_single else tiles.whole_context(self.lowered))[:, 0]

    def uniform_weights(self, pairs: Pairs, *_: LoweredSide) -> Tensor:
        """Return equal weights on all keys that a row's mask and bias let it see; 0 for a row that sees none."""
        call = self.call
        allowed = call.allowed(pairs)
        if call.bias is not None:
            # −∞ is not the only way to hide: Hugging Face adds the lowest number of the type, others −10,000
            bias = call.bias_at_pairs(pairs, call.bias)
            visible = bias > torch.finfo(bias.dtype).min / 2
            allowed = visible if allowed is None else allowed & visible
            if call.keys:
                largest = bias.where(allowed, -torch.inf).amax(-1, keepdim=True)
                allowed = allowed & (bias > largest - HIDDEN)
        shape = call.batch, len(pairs.query_index), call.keys
        if allowed is None:
            return self.lowered.value.new_full(shape, 1.0 / call.keys)
        counts = _of_head(allowed, self.head).expand(shape).to(call.accumulation_dtype)
        return counts / counts.sum(-1, keepdim=True).clamp(min=1.0)

    def weights_by(self, function: RowFunction, pairs: Pairs, query: LoweredSide, key: LoweredSide) -> Tensor:
        """Apply a function to the head's weights in a tile and return the new weights.

        Raises:
            ArgumentError: the function does not return a tensor.
            ShapeError: the function returns rows of a different shape.
        """
        allowed = self.call.allowed(pairs)
        if allowed is not None and not _has_parts_of_heads(self.call):
            allowed = _of_head(allowed, self.head)[:, None]
        weights = reference.steps_to_weights(self.part, pairs, query, key, allowed, lowered=True)["weights"][
            :, self.own
        ]
        rows = function(weights)
        if not isinstance(rows, Tensor):
            raise ArgumentError(
                f"the function of head {self.head} must return a tensor of weights, got {type(rows).__name__}"
            )
        if rows.shape != weights.shape:
            raise ShapeError(
                f"the function of head {self.head} must return (B, n, Tk) = {tuple(weights.shape)}, got "
                f"{tuple(rows.shape)}"
            )
        return rows.to(weights.dtype)


def _has_parts_of_heads(call: Call) -> bool:
    """Return whether a part of the call, besides its mask and bias, may differ from head to head."""
    return not (call.score.heads is call.position is call.weighting is call.score_mod is None)


def _of_head(tensor: Tensor, head: int) -> Tensor:
    """Return a head (B|1, …) of a tensor (B|1, H|1, …)."""
    return tensor[:, head if tensor.shape[1] > 1 else 0]
