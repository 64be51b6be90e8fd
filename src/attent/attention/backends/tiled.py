"""Any score in memory linear in the sequence, on any device.

It computes a tile of queries and keys at a time, and again for the backward pass. Only the lowered sides and the output
are stored; the weights of a tile exist only while it is computed, and again while its gradient is computed. Outputs and
gradients are written into one tensor each, which takes a third of the memory of PyTorch's checkpoints of slices. Rabe
and Staats 2021, "Self-attention Does Not Need O(n²) Memory" (arXiv:2112.05682), who tile the keys too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attent.attention import reference
from attent.attention.backends import bands
from attent.attention.backends.bands import Band, Lowered, lower_sides, select_tokens, split_into_bands
from attent.attention.backends.select import Variant
from attent.attention.base import LoweredSide
from attent.attention.call import Call, Prepared
from attent.errors import ArgumentError
from attent.ops.autograd import (
    Captures,
    Edge,
    Replacement,
    checkpointed,
    double_backward,
    needs_double_backward,
    no_autocast,
)
from attent.ops.eligibility import can_run_custom_function

# A function that returns the scores of two lowered sides and holds no other numbers.
ScoreLowered = Callable[[LoweredSide, LoweredSide], Tensor]
# A function that returns the context of a band's rows from its part of the lowered queries, keys and values.
Tile = Callable[[LoweredSide, LoweredSide, Tensor, Band], Tensor]


def unsupported(call: Call) -> str | None:
    """Return None: tiles serve every call."""
    return None


def choose(prepared: Prepared, score_lowered: ScoreLowered | None = None) -> Variant:
    """Choose "single_tile", "bands", "row_tiles" or "empty".

    Bands hold the keys that a mask leaves visible, row tiles hold every key, and an empty call has no pairs.

    Args:
        prepared: the call and its tensors.
        score_lowered: computes the scores of two lowered sides instead of the score's own method.
    """
    call = prepared.call
    if call.is_empty:
        return Variant("empty", reference.run)
    per_pair = 1 if score_lowered is not None else None
    table = bands.WHOLE * bands.TILE
    # computing a table of a few tiles at once is faster than computing each tile twice
    is_small = bands.numbers_per_row(call, per_pair) * call.queries <= table
    if is_small and torch.compiler.is_compiling():
        # without ranges of rows and keys, which would bind a graph to one length
        return Variant("single_tile", partial(_run, parts=None, score_lowered=score_lowered))
    parts = split_into_bands(call, per_pair, table if is_small or call.score_mod is not None else bands.TILE)
    name = (
        "single_tile"
        if len(parts) == 1
        else "bands"
        if any(len(band.keys) < call.keys for band in parts)
        else "row_tiles"
    )
    return Variant(name, partial(_run, parts=parts, score_lowered=score_lowered))


def _run(
    call: Call,
    query: Tensor,
    key: LoweredSide,
    value: Tensor,
    *,
    parts: list[Band] | None,
    score_lowered: ScoreLowered | None,
) -> Tensor:
    """Compute the context, (B, H, Tq, Dv), band by band; of all pairs at once without bands."""

    def tile_context(lowered_query: LoweredSide, lowered_key: LoweredSide, value: Tensor, band: Band | None) -> Tensor:
        pairs = call.pairs() if band is None else call.pairs(*band.pairs_of(call))
        allowed = call.allowed(pairs)
        steps = reference.steps_for_pairs(
            call, pairs, lowered_query, lowered_key, value, allowed, lowered=True, score_lowered=score_lowered
        )
        return steps["output"].to(call.dtype)

    lowered = lower_sides(call, query, key, value)
    if parts is None:
        return tile_context(*lowered, None)
    tiles = Tiles(call, parts, tile_context)
    # a single tile stays within bounds, including what autograd stores for it
    return tiles.context(lowered, parts[0]) if len(parts) == 1 else tiles.whole_context(lowered)


def row_statistic(prepared: Prepared, statistic: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute a statistic of each row of scores, (B, H, Tq) in the accumulation type, with its gradient.

    Args:
        prepared: the call and its tensors.
        statistic: a function of scores (B, H, rows, keys), in which a pair that may not attend is −∞.
    """
    call = replace(prepared.call, value_width=1, dtype=prepared.call.accumulation_dtype)

    def tile_statistic(lowered_query: LoweredSide, lowered_key: LoweredSide, value: Tensor, band: Band) -> Tensor:
        pairs = call.pairs(*band.pairs_of(call))
        steps = reference.steps_to_weights(call, pairs, lowered_query, lowered_key, call.allowed(pairs), lowered=True)
        scores = next(steps[name] for name in ("masked", "modified", "biased", "capped", "scores") if name in steps)
        return statistic(scores)[..., None]

    tiles = Tiles(call, split_into_bands(call), tile_statistic)
    return tiles.whole_context(lower_sides(call, *prepared[1:]))[..., 0]


@dataclass(frozen=True)
class Tiles:
    """A call split into bands, at least one, and the function that computes a tile of it."""

    call: Call
    bands: list[Band]
    tile: Tile

    def context(self, lowered: Lowered, band: Band) -> Tensor:
        """Compute a band's context, (B, H, rows, Dv)."""
        query, key = select_tokens(lowered.query, band.own), select_tokens(lowered.key, band.key_slice)
        return self.tile(query, key, lowered.value[:, :, band.key_slice], band)

    def whole_context(self, lowered: Lowered) -> Tensor:
        """Compute the context, (B, H, Tq, Dv), with gradients if these are enabled."""
        return (self.differentiable_context if torch.is_grad_enabled() else self.context_without_gradients)(lowered)

    def context_without_gradients(self, lowered: Lowered) -> Tensor:
        """Compute the context, (B, H, Tq, Dv), untracked by autograd."""
        call = self.call
        context = lowered.value.new_empty(call.batch, call.heads, call.queries, call.value_width, dtype=call.dtype)
        for band in self.bands:
            context[:, :, band.own] = self.context(lowered, band)
        return context

    def checkpointed_context(self, lowered: Lowered) -> Tensor:
        """Compute the context with PyTorch's checkpoints.

        This supports gradients of every order, including those of tensors that a score captured.
        """
        # functions of a pair go through vmap, which does not support checkpoints
        compute = self.context if self.call.score_mod is not None else partial(checkpointed, self.context)
        return torch.cat([compute(lowered, band) for band in self.bands], 2)

    def differentiable_context(self, lowered: Lowered) -> Tensor:
        """Compute the context, with gradients of the lowered sides and of every other leaf that tiles use."""
        if not can_run_custom_function():
            return self.checkpointed_context(lowered)
        # a band without keys uses nothing
        widest = max(self.bands, key=lambda band: len(band.keys))
        leaves = captured_leaves(self.tile, self.call, lowered, widest)
        if leaves is None:
            return self.checkpointed_context(lowered)
        sides = lowered.query.features, lowered.query.bias, lowered.key.features, lowered.key.bias, lowered.value
        return _InPlace.apply(self, lowered.key.center, leaves, *sides, *leaves)


def _lowered(tensors: list[Any], center: Tensor | None) -> Lowered:
    return Lowered(LoweredSide(tensors[0], tensors[1], center), LoweredSide(tensors[2], tensors[3], center), tensors[4])


class _InPlace(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tiles: Tiles, center: Tensor | None, captured: list[Tensor], *tensors: Tensor | None
    ) -> Tensor:
        ctx.tiles, ctx.center, ctx.captured = tiles, center, captured
        ctx.save_for_backward(*tensors)
        return tiles.context_without_gradients(_lowered(list(tensors[:5]), center))

    @staticmethod
    @no_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        tensors, needs_grad = list(ctx.saved_tensors), ctx.needs_input_grad[3:]
        if needs_double_backward(gradient):

            def plain(*sides: Tensor | None) -> Tensor:
                return ctx.tiles.checkpointed_context(_lowered(list(sides), ctx.center))

            return (
                None,
                None,
                None,
                *double_backward(plain, tensors[:5], gradient, needs_grad[:5], captured=tensors[5:]),
            )
        return None, None, None, *_sum_tile_gradients(ctx, tensors, needs_grad, gradient)


def _sum_tile_gradients(
    ctx: Any, tensors: list[Tensor | None], needs_grad: tuple[bool, ...], gradient: Tensor
) -> list[Tensor | None]:
    """Sum each tile's gradients in the order of the tiles; the first five tensors are the sides, the others leaves."""
    totals = [
        torch.zeros_like(tensor) if tensor is not None and needs else None
        for tensor, needs in zip(tensors, needs_grad, strict=True)
    ]
    others = [index for index in range(5, len(tensors)) if needs_grad[index]]
    # one computed before may depend on another: each gradient must stop at its own
    stand_ins = _stand_ins(ctx.captured)
    ends = [stand_ins.get(id(tensor), tensor) for tensor in ctx.captured]
    for band in ctx.tiles.bands:
        slices = [band.own, band.own, band.key_slice, band.key_slice, band.key_slice]
        parts = [
            None if tensor is None else tensor.detach()[:, :, own]
            for tensor, own in zip(tensors[:5], slices, strict=True)
        ]
        sides = [index for index in range(5) if needs_grad[index] and parts[index] is not None]
        for index in sides:
            parts[index].requires_grad_()  # pyright: ignore[reportOptionalMemberAccess]
        with torch.enable_grad(), Replacement(stand_ins):
            lowered = _lowered(parts, ctx.center)
            context = ctx.tiles.tile(lowered.query, lowered.key, lowered.value, band)
        if not context.requires_grad:
            continue
        leaves: list[Any] = [parts[index] for index in sides] + [ends[index - 5] for index in others]
        gradients = torch.autograd.grad(context, leaves, gradient[:, :, band.own], allow_unused=True)
        for index, part in zip(sides + others, gradients, strict=True):
            total = totals[index]
            if part is None or total is None:
                continue
            if index < 2:
                total[:, :, band.own] = part
            elif index < 5:
                band.add_key_gradient(total, part)
            else:
                total += part
    return totals


def captured_leaves(tile: Tile, call: Call, lowered: Lowered, band: Band) -> list[Tensor] | None:
    """Find the leaves, other than the lowered sides, that a tile's gradients go to, by a trial of one row.

    With a function of the scores, also find the tensors computed earlier from leaves. Otherwise return None if the tile
    cannot be recomputed: a score captured such a tensor, or drew random numbers.

    Raises:
        ArgumentError: a function of the scores uses a tensor that gets no gradient.
    """
    row = Band(band.rows[:1], band.keys)
    query, key, value = lowered.query.map(Tensor.detach), lowered.key.map(Tensor.detach), lowered.value.detach()

    def trial(mode: TorchFunctionMode, computed: Mapping[Edge, Tensor]) -> list[Tensor] | None:
        first_node = torch._C._autograd._get_sequence_nr()  # pyright: ignore[reportAttributeAccessIssue]
        with _restored_random_state(call.device) as has_drawn, torch.enable_grad():
            with mode:
                keys = row.key_slice
                context = tile(select_tokens(query, row.own), select_tokens(key, keys), value[:, :, keys], row)
            return None if has_drawn() else _leaves(context, first_node, computed)

    if call.score_mod is None:
        return trial(Replacement({}), {})
    captures = Captures()
    leaves = trial(captures, captures.by_edge)
    if leaves is None or trial(Replacement(_stand_ins(leaves)), {}) is None:
        raise ArgumentError(
            "score_mod uses a tensor whose gradient would be lost: compute it with PyTorch functions from captured "
            "tensors"
        )
    return leaves


def _stand_ins(captured: list[Tensor]) -> dict[int, Tensor]:
    """Return a leaf to stand in for each tensor that was computed from leaves, by the tensor's id."""
    return {id(tensor): tensor.detach().requires_grad_() for tensor in captured if not tensor.is_leaf}


def _leaves(context: Tensor, first_node: int, computed: Mapping[Edge, Tensor]) -> list[Tensor] | None:
    """Return the leaves from which a tensor was computed, or the tensors computed earlier.

    None if one of these is not known.
    """
    leaves: dict[int, Tensor] = {}
    stack: list[Edge] = [(context.grad_fn, context.output_nr)]
    visited = set[Edge]()
    while stack:
        edge = stack.pop()
        node = edge[0]
        if node is None or edge in visited:
            continue
        visited.add(edge)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            leaves[id(leaf)] = leaf
        elif node._sequence_nr() >= first_node:
            stack.extend(node.next_functions)
        elif edge in computed:
            leaves[id(computed[edge])] = computed[edge]
        else:
            return None
    return list(leaves.values())


@contextmanager
def _restored_random_state(device: torch.device) -> Iterator[Callable[[], bool]]:
    """Restore the random generators at the end; yield a function that returns whether any was used."""
    cpu, cuda = torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def has_drawn() -> bool:
        is_same = torch.equal(torch.get_rng_state(), cpu)
        return not is_same or (cuda is not None and not torch.equal(torch.cuda.get_rng_state(device), cuda))

    try:
        yield has_drawn
    finally:
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda, device)
