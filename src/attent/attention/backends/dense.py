"""Dot forms under softmax on a CPU in C++, a sequence at a time: where they are short, PyTorch's steps cost more than what they compute.

Queries, keys and values are read where they lie, the heads of a projection beside each other, and so are the context and the gradients
written: neither splitting heads nor merging them moves a number. Only the three are kept for the backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attent.attention import reference
from attent.attention.backends import row_tiles, sdpa_dropout
from attent.attention.backends.sdpa import PLAIN
from attent.attention.base import DotScore, Side
from attent.attention.call import Call
from attent.attention.normalizers.softmax import Softmax
from attent.ops import native
from attent.ops.autograd import double_backward, needs_double_backward, no_autocast
from attent.ops.dropout import WORD, threshold
from attent.ops.eligibility import can_run_native, is_transformed

TYPES = (torch.float32, torch.bfloat16)


def why_not(call: Call) -> str | None:
    """What keeps this implementation from a call; None if nothing does."""
    if call.device.type != "cpu":
        return "it runs on a CPU"
    if not isinstance(call.score, PLAIN):
        return f"score {type(call.score).__name__} is not the plain dot product"
    if not isinstance(call.normalizer, Softmax):
        return f"its normalizer is softmax, not {type(call.normalizer).__name__}"
    if call.dtype not in TYPES:
        return f"it takes float32 and bfloat16, not {call.dtype}"
    if call.weighting is not None:
        return "its weights are not multiplied after normalising"
    if call.soft_cap is not None or call.position is not None:
        return "it has neither a soft cap nor a bias of position"
    if call.bias is not None and call.bias.requires_grad:
        return "it has no gradient for a bias"
    if call.is_empty:
        return "there is nothing to attend to"
    if can_run_native():
        return None
    if torch.compiler.is_compiling() or native.library() is not None:
        return "it has no forward-mode derivatives, no vmap, and nothing for a compiler or a dispatch mode"
    return "its extension was not compiled when attent was installed"


def run(call: Call, query: Tensor, key: Side, value: Tensor) -> Tensor:
    """The context of each query, (B, H, Tq, Dv)."""
    assert isinstance(call.score, DotScore)
    work, given = _Work.of(call, call.score.scale(call.query_width)), (query, key.features, value)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
        return _Short.apply(*given, work)
    return work.context(*given)


@dataclass(frozen=True)
class _Work:
    """A call as the extension takes it."""

    call: Call
    scale: float
    # of each row the first key it sees and the one behind the last, (B, H, Tq); what is added to the scores, (B, H, Tk, Tq|1); or nothing
    first: Tensor | None
    behind: Tensor | None
    term: Tensor | None

    @classmethod
    def of(cls, call: Call, scale: float) -> _Work:
        """The mask as the keys between two where it can be said so, else added."""
        if call.mask is None and call.bias is None:
            return cls(call, scale, None, None, None)
        pairs = call.pairs()
        spans = None if call.mask is None or call.bias is not None else call.mask.span(pairs)
        if spans is not None:
            first, behind = (end.expand(call.batch, call.heads, call.queries, 1)[..., 0] for end in (spans[0], spans[1] + 1))
            return cls(call, scale, first.to(torch.int64), behind.to(torch.int64), None)
        allowed = call.allowed(pairs)
        assert allowed is not None
        term = torch.zeros(()) if call.bias is None else call.bias.detach().float()
        term = term.where(allowed, -torch.inf).mT.contiguous()  # (B|1, H|1, Tk|1, Tq|1)
        return cls(call, scale, None, None, term.expand(call.batch, call.heads, call.keys, -1))

    def shape(self, query: Tensor, key: Tensor, value: Tensor, gradient: Tensor | None = None) -> Tensor:
        """How everything lies in memory."""
        call, nothing = self.call, (0, 0, 0)
        (batch, heads, queries, width), (_, groups, keys, _) = query.shape, key.shape
        sizes = batch, heads, groups, queries, keys, width, value.shape[3]
        halves = [one.dtype == torch.bfloat16 for one in (query, key, value, value)]
        sides = (one.stride()[:3] for one in (query, key, value))
        spans = (nothing if one is None else one.stride() for one in (self.first, self.behind))
        term = (*nothing, 0) if self.term is None else (*self.term.stride()[:3], int(self.term.shape[3] == call.queries))
        steps = [*sides, nothing if gradient is None else gradient.stride()[:3], *spans, term]
        return torch.tensor([*sizes, *halves, *(step for some in steps for step in some)], dtype=torch.int64)

    def numbers(self) -> tuple[float, ...]:
        """The seed, below which hash a weight goes, what the others are multiplied with, and the factor on q·k."""
        call = self.call
        seed = 0 if call.seed is None else int(call.seed) & WORD
        return seed, threshold(call.dropout), 1.0 / (1.0 - call.dropout), self.scale

    def run(self, name: str, *tensors: Tensor | None) -> None:
        """Call the extension, whose pointers may be none."""
        nothing = torch.empty(0)
        native.run(name, tuple(nothing if one is None else one for one in tensors), *self.numbers())

    def context(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """(B, H, Tq, Dv), of the values' type; in memory a query's heads lie beside each other."""
        query, key, value = (_readable(one) for one in (query, key, value))
        context = value.new_empty(query.shape[0], query.shape[2], query.shape[1], value.shape[3])
        self.run("attent_short", query, key, value, self.first, self.behind, self.term, context, self.shape(query, key, value))
        return context.transpose(1, 2)

    def gradients(self, query: Tensor, key: Tensor, value: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of the three, laid out as the context."""
        query, key, value, gradient = (_readable(one) for one in (query, key, value, gradient))
        found = [one.new_empty(one.shape[0], one.shape[2], one.shape[1], one.shape[3]) for one in (query, key, value)]
        given, shape = (query, key, value, self.first, self.behind, self.term, gradient), self.shape(query, key, value, gradient)
        self.run("attent_short_gradients", *given, *found, shape)
        dquery, dkey, dvalue = (one.transpose(1, 2) for one in found)
        return dquery, dkey, dvalue


def _readable(tensor: Tensor) -> Tensor:
    """With features that lie beside each other."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


class _Short(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, work: _Work) -> Tensor:
        ctx.save_for_backward(query, key, value)
        ctx.work = work
        return work.context(query, key, value)

    @staticmethod
    @no_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value = ctx.saved_tensors
        if needs_double_backward(gradient):
            return *double_backward(partial(_plain, ctx.work), (query, key, value), gradient), None
        return *ctx.work.gradients(query, key, value, gradient), None


def _plain(work: _Work, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The context by steps that PyTorch differentiates."""
    call = work.call
    if is_transformed():
        return reference.run(call, query, Side(key), value)
    query, key, value = (call.spread(tensor).to(call.exact) for tensor in (query, key, value))
    seen, side = row_tiles.visible(call), Side(key)
    if seen is not None:
        side, value = reference.without_hidden(seen, side, value)
    return sdpa_dropout.context(call, query, side.features, value, work.scale).to(call.dtype)
