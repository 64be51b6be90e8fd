"""Tiles that are computed once forward and once more for the backward, outputs and gradients written in their places.

Of what a tile goes through nothing is kept, and nothing as long as the sequence is made for each: what PyTorch's checkpoints of
slices would do, at a third of their memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attent.attention.backends import probe
from attent.attention.backends import row_tiles as by_rows
from attent.attention.backends.block_sparse import Band
from attent.attention.base import LoweredSide
from attent.attention.call import Call
from attent.ops.autograd import checkpointed, double_backward, needs_double_backward, no_autocast
from attent.ops.eligibility import can_run_custom_function

# The context of a band's rows, given its part of the lowered queries, keys and values.
Tile = Callable[[LoweredSide, LoweredSide, Tensor, Band], Tensor]


@dataclass(frozen=True)
class Tiles:
    """A call in bands, at least one, and what computes a tile of it."""

    call: Call
    bands: list[Band]
    tile: Tile

    def context(self, lowered: by_rows.Lowered, band: Band) -> Tensor:
        """Compute a band's context, (B, H, rows, Dv)."""
        lowered_query, lowered_key = by_rows.some(lowered.query, band.own), by_rows.some(lowered.key, band.key_slice)
        return self.tile(lowered_query, lowered_key, lowered.value[:, :, band.key_slice], band)

    def once(self, lowered: by_rows.Lowered) -> Tensor:
        """The context, (B, H, Tq, Dv), where no gradient is wanted."""
        context = lowered.value.new_empty(self.call.batch, self.call.heads, self.call.queries, self.call.value_width, dtype=self.call.dtype)
        for band in self.bands:
            context[:, :, band.own] = self.context(lowered, band)
        return context

    def checkpointed(self, lowered: by_rows.Lowered) -> Tensor:
        """The context, whose gradients PyTorch's checkpoints take care of, of every order and whatever a score captured."""
        return torch.cat([checkpointed(self.context, lowered, band) for band in self.bands], 2)

    def differentiable(self, lowered: by_rows.Lowered) -> Tensor:
        """The context, with gradients to the lowered sides and to every leaf that tiles use besides."""
        leaves = probe.besides(self.tile, self.call, lowered, self.bands[0]) if can_run_custom_function() else None
        if leaves is None:
            return self.checkpointed(lowered)
        return _InPlace.apply(self, lowered.key.center, *_flat(lowered), *leaves)


def _flat(lowered: by_rows.Lowered) -> list[Tensor | None]:
    return [lowered.query.features, lowered.query.bias, lowered.key.features, lowered.key.bias, lowered.value]


def _lowered(tensors: list[Any], center: Tensor | None) -> by_rows.Lowered:
    return by_rows.Lowered(LoweredSide(tensors[0], tensors[1], center), LoweredSide(tensors[2], tensors[3], center), tensors[4])


class _InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tiles: Tiles, center: Tensor | None, *tensors: Tensor | None) -> Tensor:
        ctx.tiles, ctx.center = tiles, center
        ctx.save_for_backward(*tensors)
        return tiles.once(_lowered(list(tensors[:5]), center))

    @staticmethod
    @no_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        tensors, wanted = list(ctx.saved_tensors), ctx.needs_input_grad[2:]
        if needs_double_backward(gradient):

            def plain(*sides: Tensor | None) -> Tensor:
                return ctx.tiles.checkpointed(_lowered(list(sides), ctx.center))

            return None, None, *double_backward(plain, tensors[:5], gradient, wanted[:5], captured=tensors[5:])
        return None, None, *_by_tiles(ctx, tensors, wanted, gradient)


def _by_tiles(ctx: Any, tensors: list[Tensor | None], wanted: tuple[bool, ...], gradient: Tensor) -> list[Tensor | None]:
    """Each tile's gradients, added in the order of the tiles."""
    totals = [torch.zeros_like(tensor) if tensor is not None and want else None for tensor, want in zip(tensors, wanted, strict=True)]
    besides = [place for place in range(5, len(tensors)) if wanted[place]]
    for band in ctx.tiles.bands:
        at = [band.own, band.own, band.key_slice, band.key_slice, band.key_slice]
        parts = [None if tensor is None else tensor.detach()[:, :, where] for tensor, where in zip(tensors[:5], at, strict=True)]
        inputs = [place for place in range(5) if wanted[place] and parts[place] is not None]
        for place in inputs:
            parts[place].requires_grad_()  # pyright: ignore[reportOptionalMemberAccess]
        with torch.enable_grad():
            lowered = _lowered(parts, ctx.center)
            context = ctx.tiles.tile(lowered.query, lowered.key, lowered.value, band)
        if not context.requires_grad:
            continue
        places = inputs + besides
        leaves: list[Any] = [parts[place] for place in inputs] + [tensors[place] for place in besides]
        found = torch.autograd.grad(context, leaves, gradient[:, :, band.own], allow_unused=True)
        for place, part in zip(places, found, strict=True):
            total = totals[place]
            if part is None or total is None:
                continue
            if place < 2:
                total[:, :, band.own] = part
            elif place < 5:
                band.add(total, part)
            else:
                total += part
    return totals
