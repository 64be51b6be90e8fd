"""Dot forms under softmax with dropout, on a CPU: some heads at a time, in place, so that scores and weights stay in a core's cache.

PyTorch's fused attention computes the whole table for dropout, and does not know a mask that is a function of (seed, b, h, i, j).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attent.attention import reference
from attent.attention.backends import row_tiles, select
from attent.attention.base import DotScore, LoweredSide
from attent.attention.call import Call
from attent.attention.mask_info import AdditiveMask, additive
from attent.ops.autograd import checkpointed, double_backward, needs_double_backward, no_autocast
from attent.ops.dropout import DropoutMask
from attent.ops.eligibility import can_run_custom_function
from attent.ops.sdpa import scaled_bmm

# Pairs in memory at a time: 1 MiB of float32 for their scores, and as much for their weights.
CHUNK = 2**18


CAPABILITIES = frozenset({"bias", "dropout"})


def unsupported(call: Call) -> str | None:
    """Return why this backend cannot serve a call, None if it can."""
    if not call.dropout:
        return "it serves dropout alone"
    if not isinstance(call.score, DotScore):
        return f"score {type(call.score).__name__} has no dot form"
    if reason := select.missing(call, CAPABILITIES):
        return reason
    if not can_run_custom_function() or torch.is_inference_mode_enabled():
        return "it has no forward-mode derivatives, no vmap, and nothing for a compiler"
    return None


def run(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> Tensor:
    """Compute the context of each query, (B, H, Tq, Dv)."""
    if call.is_empty:
        return reference.run(call, query, key, value)
    lowered_query, lowered_key, value = row_tiles.lower(call, query, key, value)
    query, features, scale = row_tiles.products_of(call, lowered_query, lowered_key)
    return context(call, query, features, value, scale).to(call.dtype)


def context(call: Call, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Compute the context of lowered float32 or float64 features, one key head per query head; also without dropout."""
    pairs, seed = call.pairs(), 0 if call.seed is None else call.seed
    chunks = _Chunks(call, scale, DropoutMask.of(pairs.query_index, pairs.key_index, pairs.heads, call.batch, call.dropout, seed))
    return _Dropped.apply(query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1), chunks).unflatten(0, (call.batch, call.heads))


class _Chunk(NamedTuple):
    """Rows of queries of some groups, the heads of all sequences in order, that are computed together."""

    groups: slice
    rows: slice
    mask: AdditiveMask  # (groups|1, rows|1, Tk|1)


@dataclass(frozen=True)
class _Chunks:
    """The chunks of a call and what they share."""

    call: Call
    scale: float
    dropout: DropoutMask

    def slices(self) -> Iterator[tuple[slice, list[slice]]]:
        """Yield rows, and the slices of groups that are computed with them in turn."""
        total, queries, keys = self.call.batch * self.call.heads, self.call.queries, self.call.keys
        row_step, group_step = max(CHUNK // keys, 1), max(CHUNK // (queries * keys), 1)
        groups = [slice(begin, min(begin + group_step, total)) for begin in range(0, total, group_step)]
        for begin in range(0, queries, row_step):
            yield slice(begin, min(begin + row_step, queries)), groups

    def __iter__(self) -> Iterator[_Chunk]:
        """Yield all chunks; those of the same rows share a mask."""
        call = self.call
        for rows, groups in self.slices():
            pairs = call.pairs(torch.arange(rows.start, rows.stop))
            bias = None if call.bias is None else call.bias_of(pairs, call.bias)
            term, fully_masked = additive(call.allowed(pairs), bias, call.accumulation_dtype)
            for group in groups:
                yield _Chunk(group, rows, AdditiveMask(self._of_groups(term, group), self._of_groups(fully_masked, group)))

    def _of_groups(self, table: Tensor | None, groups: slice) -> Tensor | None:
        """Select some groups of a table (B|1, H|1, rows|1, Tk|1)."""
        if table is None or table.shape[0] == table.shape[1] == 1:
            return None if table is None else table[0]
        index = torch.arange(groups.start, groups.stop)
        batch, head = index // self.call.heads, index % self.call.heads
        return table[batch if table.shape[0] > 1 else 0, head if table.shape[1] > 1 else 0]

    def weights(self, query: Tensor, key: Tensor, mask: AdditiveMask, scores: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """Compute the weights of a chunk before dropout, (groups, rows, Tk), in the memory `out`; its scores in `scores`."""
        scores = scaled_bmm(query, key.mT, self.scale, scores)
        if mask.term is not None:
            scores = scores.add_(mask.term)
        weights = torch.softmax(scores, -1, out=out)
        return weights if mask.fully_masked is None else weights.masked_fill_(mask.fully_masked, 0.0)


class _Buffers:
    """Memory for the tables of a chunk, reused for each."""

    def __init__(self, like: Tensor, chunks: _Chunks, count: int) -> None:
        self.keys = chunks.call.keys
        rows, groups = next(chunks.slices())
        size = (groups[0].stop - groups[0].start) * (rows.stop - rows.start) * self.keys
        self.buffers = [like.new_empty(size) for _ in range(count)]

    def views(self, query: Tensor) -> list[Tensor]:
        """Return a table (groups, rows, Tk) of each buffer for a chunk's queries."""
        return [buffer[: query.shape[0] * query.shape[1] * self.keys].view(*query.shape[:2], self.keys) for buffer in self.buffers]


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, chunks: _Chunks) -> Tensor:
        context = value.new_empty(*query.shape[:2], value.shape[2])
        # a small table of weights is stored rather than computed again
        is_small = len(query) * chunks.call.queries * chunks.call.keys <= row_tiles.WHOLE * row_tiles.TILE
        stored = query.new_empty(*query.shape[:2], chunks.call.keys) if is_small and any(ctx.needs_input_grad) else None
        buffers = _Buffers(query, chunks, 2)
        for groups, rows, mask in chunks:
            queries = query[groups, rows]
            scores, table = buffers.views(queries)
            weights = chunks.weights(queries, key[groups], mask, scores, table if stored is None else stored[groups, rows])
            context[groups, rows] = torch.bmm(chunks.dropout.apply(weights, groups, rows, scores), value[groups])
        ctx.save_for_backward(query, key, value, stored)
        ctx.chunks = chunks
        return context

    @staticmethod
    @no_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, stored = ctx.saved_tensors
        chunks: _Chunks = ctx.chunks
        if needs_double_backward(gradient):
            # narrow, since a slice of everything would be an alias, which batched gradients do not have
            gradients = [
                gradient.narrow(0, groups.start, groups.stop - groups.start).narrow(1, rows.start, rows.stop - rows.start)
                for groups, rows, _ in chunks
            ]
            return *double_backward(partial(_plain, chunks), (query, key, value), gradients), None
        dq, dk, dv = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        buffers = _Buffers(query, chunks, 2 if stored is not None else 3)
        for groups, rows, mask in chunks:
            queries, keys, dcontext = query[groups, rows], key[groups], gradient[groups, rows]
            first, second, *third = buffers.views(queries)
            weights = chunks.weights(queries, keys, mask, first, *third) if stored is None else stored[groups, rows]
            dv[groups].baddbmm_(chunks.dropout.apply(weights, groups, rows, first).mT, dcontext)
            dweights = torch.bmm(dcontext, value[groups].mT, out=second)
            dscores = torch._softmax_backward_data(  # pyright: ignore[reportPrivateImportUsage]
                chunks.dropout.apply(dweights, groups, rows, dweights), weights, -1, weights.dtype, grad_input=first
            )
            dq[groups, rows] = scaled_bmm(dscores, keys, chunks.scale)
            dk[groups].baddbmm_(dscores.mT, queries, alpha=chunks.scale)
        return dq, dk, dv, None


def _plain(chunks: _Chunks, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """Compute the chunks' contexts by steps that PyTorch differentiates, which store none of their weights."""

    def context(query: Tensor, key: Tensor, value: Tensor, groups: slice, rows: slice, mask: AdditiveMask) -> Tensor:
        weights = chunks.weights(query, key, mask)
        factors = torch.ones_like(weights, requires_grad=False)
        return (weights * chunks.dropout.apply(factors, groups, rows, factors)) @ value

    return [checkpointed(context, query[groups, rows], key[groups], value[groups], groups, rows, mask) for groups, rows, mask in chunks]
