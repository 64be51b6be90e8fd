"""Dot-product attention with softmax in the compiled library.

It works on tiles of keys, in memory that grows linearly with the length. Queries, keys and values are read in the
layout of the projections, with heads side by side, and the context and gradients are written in that layout: splitting
and merging heads copies nothing. The backward additionally needs the context and two numbers per row.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attent.ops import native
from attent.ops.autograd import double_backward, needs_double_backward, no_autocast
from attent.ops.dropout import WORD, threshold
from attent.ops.eligibility import can_run_native, constant_in_graphs

# In the order in which the kernel numbers its types.
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Lower values of a pairwise bias are clamped to this and get no gradient; the kernel uses the same number.
LEAST_BIAS = torch.finfo(torch.float32).min / 2


@constant_in_graphs
def is_compiled() -> bool:
    """Return whether the compiled library is available."""
    return native.library() is not None


def can_run(*tensors: Tensor) -> bool:
    """Return whether the kernel can compute with tensors of these types now.

    This requires that no compiler, dispatch mode or transform is active.
    """
    return can_run_native(*tensors, dtypes=DTYPES)


@dataclass(frozen=True)
class DenseAttention:
    """softmax(capped(scale · q·k) + bias) V over a range of keys for each query.

    capped(s) = soft_cap · tanh(s / soft_cap).

    Args:
        scale: the factor on q·k.
        begin: the first key that each query sees, int64 (B|1, H|1, Tq|1); all keys by default.
        end: one past the last key that each query sees, int64 (B|1, H|1, Tq|1).
        soft_cap: the bound of the scores before a bias; none by default.
        dropout: the dropout probability of the weights.
        seed: the seed for `attent.ops.dropout`.
        reference: a function from the arguments of `__call__` to the context in plain PyTorch, for second derivatives
            and batched gradients, which are not supported without it.
    """

    scale: float
    begin: Tensor | None = None
    end: Tensor | None = None
    soft_cap: float | None = None
    dropout: float = 0.0
    seed: int = 0
    reference: Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None], Tensor] | None = None

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None = None,
        offset_bias: Tensor | None = None,
        sink: Tensor | None = None,
    ) -> Tensor:
        """Return the context, (B, H, Tq, Dv), of queries (B, H, Tq, D), keys (B, G, Tk, D) and values (B, G, Tk, Dv).

        Args:
            query: the queries, in float32, bfloat16 or float16.
            key: the keys, in one of these dtypes.
            value: the values, in one of these dtypes.
            bias: a term added to the scores, −∞ for hidden pairs, float32 (B|1, H|1, Tq|1, Tk); numbers below
                `LEAST_BIAS` are clamped to it.
            offset_bias: a term added to the scores by offset, −∞ for hidden pairs; that of query i and key j is at
                i − j + Tk − 1, float32 (H|1, Tq + Tk − 1).
            sink: a logit without a value in each head's softmax, float32 (1, H, 1, 1).
        """
        tensors = query, key, value, bias, offset_bias, sink
        if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
            return _DenseAttention.apply(*tensors, self)
        return self.forward(*tensors)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None = None,
        offset_bias: Tensor | None = None,
        sink: Tensor | None = None,
        statistics: Tensor | None = None,
    ) -> Tensor:
        """Return the context in the dtype of the values; in memory, a query's heads are side by side.

        Args:
            query: (B, H, Tq, D).
            key: (B, G, Tk, D).
            value: (B, G, Tk, Dv).
            bias: the bias of pairs, as in `__call__`.
            offset_bias: the bias of offsets, as in `__call__`.
            sink: the logit of each head, as in `__call__`.
            statistics: receives the maximum of each row's scores and the inverse of its sum, which includes the sink,
                float32 (2, B, H, Tq).
        """
        if sink is not None and statistics is None:
            statistics = query.new_empty(2, *query.shape[:3], dtype=torch.float32)
        query, key, value = (_with_unit_stride(tensor) for tensor in (query, key, value))
        offset_bias = None if offset_bias is None else offset_bias.contiguous()
        context = value.new_empty(query.shape[0], query.shape[2], query.shape[1], value.shape[3])
        layout = self._layout(query, key, value, bias, offset_bias)
        inputs = query, key, value, self.begin, self.end, bias, offset_bias
        self._run("attent_dense_attention_context", *inputs, context, statistics, layout)
        if sink is not None and statistics is not None:
            share = (1.0 + _mass(sink, statistics)).reciprocal()
            context *= share.transpose(1, 2)[..., None]
            statistics[1] *= share
        return context.transpose(1, 2)

    def backward(
        self,
        tensors: Sequence[Any],
        context: Tensor,
        statistics: Tensor,
        gradient: Tensor,
        needs_grad: Sequence[bool],
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of the arguments of `__call__`.

        The first three have the memory layout of the context that `forward` returned.

        Args:
            tensors: the arguments of `__call__`.
            context: what `forward` returned.
            statistics: what `forward` wrote.
            gradient: the gradient of the context.
            needs_grad: whether bias, offset bias and sink need a gradient.
        """
        bias, offset_bias, sink = tensors[3:]
        query, key, value, gradient = (_with_unit_stride(tensor) for tensor in (*tensors[:3], gradient))
        offset_bias = None if offset_bias is None else offset_bias.contiguous()
        gradients = [tensor.new_empty(tensor.transpose(1, 2).shape) for tensor in (query, key, value)]
        of_bias = bias.new_empty(bias.shape) if bias is not None and needs_grad[0] else None
        of_offset_bias = offset_bias.new_zeros(offset_bias.shape) if offset_bias is not None and needs_grad[1] else None
        layout = self._layout(query, key, value, bias, offset_bias, gradient, of_bias)
        inputs = query, key, value, self.begin, self.end, bias, offset_bias, context, statistics, gradient
        self._run("attent_dense_attention_gradients", *inputs, *gradients, of_bias, of_offset_bias, layout)
        # softmax gives weight to values this low only in rows without a higher one
        if of_bias is not None and bias is not None and bool((statistics[0] < LEAST_BIAS / 2).any()):
            of_bias.masked_fill_(bias < LEAST_BIAS, 0.0)
        of_sink = None
        if sink is not None and needs_grad[2]:
            # the sink's weight times what the other weights give
            mixed = (gradient.float() * context.float()).sum(-1)
            of_sink = -(_mass(sink, statistics) * mixed).sum((0, 2))[None, :, None, None]
        return *(tensor.transpose(1, 2) for tensor in gradients), of_bias, of_offset_bias, of_sink

    def _layout(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        offset_bias: Tensor | None,
        gradient: Tensor | None = None,
        of_bias: Tensor | None = None,
    ) -> array[int]:
        """Return the sizes, types and strides of all tensors as 64-bit integers."""
        (batch, heads, queries, width), (_, groups, keys, _) = query.shape, key.shape
        sizes = batch, heads, groups, queries, keys, width, value.shape[3]
        types = [DTYPES.index(tensor.dtype) for tensor in (query, key, value, value)]
        strides: list[int] = [stride for tensor in (query, key, value) for stride in tensor.stride()[:3]]
        strides += (0, 0, 0) if gradient is None else gradient.stride()[:3]
        strides += _strides_of_shared(self.begin)[:3] + _strides_of_shared(self.end)[:3]
        strides += _strides_of_shared(bias) + _strides_of_shared(of_bias)[:3]
        if offset_bias is None:
            strides += 0, 0
        else:
            strides += 0 if len(offset_bias) == 1 else queries + keys - 1, bool((offset_bias == -torch.inf).any())
        return array("q", [*sizes, *types, *strides])

    def _run(self, name: str, *tensors: Tensor | array[int] | None) -> None:
        hash_threshold = threshold(self.dropout) if self.dropout else 0
        native.run(
            name,
            tensors,
            self.seed & WORD,
            hash_threshold,
            1.0 / (1.0 - self.dropout),
            self.scale,
            self.soft_cap or 0.0,
        )


def _mass(sink: Tensor, statistics: Tensor) -> Tensor:
    """Return the ratio of a sink to the sum of the statistics, (B, H, Tq); 0 in rows that see no key."""
    maximum, inverse = statistics
    return ((sink[..., 0] - maximum).exp() * inverse).nan_to_num(0.0, torch.inf)


def _strides_of_shared(tensor: Tensor | None) -> list[int]:
    """Return the strides of a bias or of a bound, 0 along axes of size 1, which are broadcast."""
    if tensor is None:
        return [0, 0, 0, 0]
    return [0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]


def _with_unit_stride(tensor: Tensor) -> Tensor:
    """Return the tensor with contiguous features."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


class _DenseAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        offset_bias: Tensor | None,
        sink: Tensor | None,
        attention: DenseAttention,
    ) -> Tensor:
        statistics = query.new_empty(2, *query.shape[:3], dtype=torch.float32)
        context = attention.forward(query, key, value, bias, offset_bias, sink, statistics)
        ctx.save_for_backward(query, key, value, bias, offset_bias, sink, context, statistics)
        ctx.attention = attention
        return context

    @staticmethod
    @no_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        # read only once, as activation checkpointing requires
        *tensors, context, statistics = ctx.saved_tensors
        needs_grad = ctx.needs_input_grad[3:6]
        if needs_double_backward(gradient):
            return *double_backward(ctx.attention.reference, tensors, gradient, (True, True, True, *needs_grad)), None
        return *ctx.attention.backward(tensors, context, statistics, gradient, needs_grad), None
