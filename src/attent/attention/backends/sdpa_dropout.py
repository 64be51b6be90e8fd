"""Dot forms under softmax with dropout, on a CPU: some heads at a time in place, so that what is made of them stays in a core's cache.

PyTorch's fused attention falls back to the whole table for dropout, and so would ours: its mask is a function of (seed, b, h, i, j).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attent.attention import reference
from attent.attention.backends import row_tiles
from attent.attention.backends.capabilities import missing
from attent.attention.base import DotScore, LoweredSide
from attent.attention.call import Call
from attent.attention.mask_info import AdditiveMask, additive
from attent.ops.autograd import checkpointed, double_backward, needs_double_backward, no_autocast
from attent.ops.dropout import DropoutMask
from attent.ops.eligibility import can_run_custom_function

# Pairs that are held at a time: 1 MiB of float32 for their scores, and as much for their weights.
CHUNK = 2**18


CAPABILITIES = frozenset({"bias", "dropout"})


def unsupported(call: Call) -> str | None:
    """Return why this backend cannot serve a call, None if it can."""
    if not call.dropout:
        return "it serves dropout alone"
    if not isinstance(call.score, DotScore):
        return f"score {type(call.score).__name__} has no dot form"
    if reason := missing(call, CAPABILITIES):
        return reason
    if not can_run_custom_function() or torch.is_inference_mode_enabled():
        return "it has no forward-mode derivatives, no vmap, and nothing for a compiler"
    return None


def run(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> Tensor:
    """The context of each query, (B, H, Tq, Dv)."""
    if call.is_empty:
        return reference.run(call, query, key, value)
    lowered_query, lowered_key, value = row_tiles.lower(call, query, key, value)
    query, features, scale = row_tiles.products_of(call, lowered_query, lowered_key)
    return context(call, query, features, value, scale).to(call.dtype)


def context(call: Call, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Compute the context of lowered float32 or float64 features, one key head per query head; also without dropout."""
    pairs, seed = call.pairs(), 0 if call.seed is None else call.seed
    work = _Work(call, scale, DropoutMask.of(pairs.query_index, pairs.key_index, pairs.heads, call.batch, call.dropout, seed))
    found = _Dropped.apply(query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1), work)
    return found.unflatten(0, (call.batch, call.heads))


class _Chunk(NamedTuple):
    """Heads of sequences, counted sequence by sequence, and rows of queries that are computed together."""

    groups: slice
    row_tiles: slice
    hidden: AdditiveMask  # (groups|1, rows|1, Tk|1)


@dataclass(frozen=True)
class _Work:
    """The settings that the chunks of a call share."""

    call: Call
    scale: float
    dropout: DropoutMask

    def slices(self) -> Iterator[tuple[slice, list[slice]]]:
        """Rows, and the groups that are computed with them in turn."""
        every, queries, keys = self.call.batch * self.call.heads, self.call.queries, self.call.keys
        step, wide = max(CHUNK // keys, 1), max(CHUNK // (queries * keys), 1)
        for first in range(0, queries, step):
            yield slice(first, min(first + step, queries)), [slice(group, min(group + wide, every)) for group in range(0, every, wide)]

    def chunks(self) -> Iterator[_Chunk]:
        """All of them, the mask made once for the groups that share its rows."""
        call = self.call
        for some, several in self.slices():
            pairs = call.pairs(torch.arange(some.start, some.stop))
            bias = None if call.bias is None else call.bias_of(pairs, call.bias)
            term, dead = additive(call.allowed(pairs), bias, call.accumulation_dtype)
            for groups in several:
                yield _Chunk(groups, some, AdditiveMask(self._some(term, groups), self._some(dead, groups)))

    def _some(self, table: Tensor | None, groups: slice) -> Tensor | None:
        """Select some groups of a table (B|1, H|1, rows|1, Tk|1)."""
        if table is None or table.shape[0] == table.shape[1] == 1:
            return None if table is None else table[0]
        number = torch.arange(groups.start, groups.stop)
        batch, head = number // self.call.heads, number % self.call.heads
        return table[batch if table.shape[0] > 1 else 0, head if table.shape[1] > 1 else 0]

    def weights(self, query: Tensor, key: Tensor, hidden: AdditiveMask, scores: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """The weights of a chunk before dropout, (groups, rows, Tk); memory for its scores and for them may be given."""
        scores = _times(query, key.mT, self.scale, scores)
        if hidden.term is not None:
            scores = scores.add_(hidden.term)
        weights = torch.softmax(scores, -1, out=out)
        return weights if hidden.fully_masked is None else weights.masked_fill_(hidden.fully_masked, 0.0)


def _times(one: Tensor, other: Tensor, factor: float, out: Tensor | None = None) -> Tensor:
    """The products of matrices times a factor, in one pass."""
    return torch.baddbmm(one.new_empty(1, 1, 1), one, other, beta=0, alpha=factor, out=out)


class _Memory:
    """Places for what a chunk is made of, used again for each."""

    def __init__(self, like: Tensor, work: _Work, places: int) -> None:
        self.keys = work.call.keys
        row_tiles, groups = next(work.slices())
        size = (groups[0].stop - groups[0].start) * (row_tiles.stop - row_tiles.start) * self.keys
        self.places = [like.new_empty(size) for _ in range(places)]

    def of(self, query: Tensor) -> list[Tensor]:
        """The places, (groups, rows, Tk) each, for a chunk's queries."""
        return [place[: query.shape[0] * query.shape[1] * self.keys].view(*query.shape[:2], self.keys) for place in self.places]


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, work: _Work) -> Tensor:
        context = value.new_empty(*query.shape[:2], value.shape[2])
        # few weights are rather kept than computed again
        few = len(query) * work.call.queries * work.call.keys <= row_tiles.WHOLE * row_tiles.TILE and any(ctx.needs_input_grad)
        kept = query.new_empty(*query.shape[:2], work.call.keys) if few else None
        memory = _Memory(query, work, 2)
        for groups, some, hidden in work.chunks():
            lowered_query = query[groups, some]
            scores, found = memory.of(lowered_query)
            weights = work.weights(lowered_query, key[groups], hidden, scores, found if kept is None else kept[groups, some])
            context[groups, some] = torch.bmm(work.dropout.apply(weights, groups, some, scores), value[groups])
        ctx.save_for_backward(query, key, value, kept)
        ctx.work = work
        return context

    @staticmethod
    @no_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, kept = ctx.saved_tensors
        work: _Work = ctx.work
        if needs_double_backward(gradient):
            # slices of everything would be aliases, of which there is no batch
            gradients = [
                gradient.narrow(0, groups.start, groups.stop - groups.start).narrow(1, some.start, some.stop - some.start)
                for groups, some, _ in work.chunks()
            ]
            return *double_backward(partial(_plain, work), (query, key, value), gradients), None
        dq, dk, dv = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        memory = _Memory(query, work, 2 if kept is not None else 3)
        for groups, some, hidden in work.chunks():
            lowered_query, lowered_key, up = query[groups, some], key[groups], gradient[groups, some]
            first, second, *third = memory.of(lowered_query)
            weights = work.weights(lowered_query, lowered_key, hidden, first, *third) if kept is None else kept[groups, some]
            dv[groups].baddbmm_(work.dropout.apply(weights, groups, some, first).mT, up)
            dweights = torch.bmm(up, value[groups].mT, out=second)
            dscores = torch._softmax_backward_data(  # pyright: ignore[reportPrivateImportUsage]
                work.dropout.apply(dweights, groups, some, dweights), weights, -1, weights.dtype, grad_input=first
            )
            dq[groups, some] = _times(dscores, lowered_key, work.scale)
            dk[groups].baddbmm_(dscores.mT, lowered_query, alpha=work.scale)
        return dq, dk, dv, None


def _plain(work: _Work, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """The chunks' contexts by steps that PyTorch differentiates, which keep none of their weights."""

    def context(query: Tensor, key: Tensor, value: Tensor, groups: slice, some: slice, hidden: AdditiveMask) -> Tensor:
        weights = work.weights(query, key, hidden)
        factors = torch.ones_like(weights, requires_grad=False)
        return (weights * work.dropout.apply(factors, groups, some, factors)) @ value

    return [
        checkpointed(context, query[groups, some], key[groups], value[groups], groups, some, hidden)
        for groups, some, hidden in work.chunks()
    ]
