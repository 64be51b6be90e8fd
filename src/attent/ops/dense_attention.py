"""Attention of dot products under softmax by the compiled library.

It computes by tiles of keys, in memory that grows with the length. Queries, keys and values are read where they lie,
the heads of a projection side by side, and the context and gradients are written so: neither splitting nor merging
heads copies a number. Beside these the backward needs the context, and two numbers of each row.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attent.ops import native
from attent.ops.autograd import double_backward, needs_double_backward, no_autocast
from attent.ops.dropout import WORD, threshold
from attent.ops.eligibility import can_run_native

# In the order of the kernel's numbers of types.
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Lower numbers of a pairwise bias are raised to this without a gradient, as by `clamp`; the kernel has the same number.
LEAST_BIAS = torch.finfo(torch.float32).min / 2


def is_compiled() -> bool:
    """Return whether the compiled library is there."""
    return native.library() is not None


def can_run(*tensors: Tensor) -> bool:
    """Return whether the kernel takes tensors of these types here and now.

    No compiler, dispatch mode or transform sees them.
    """
    return can_run_native(*tensors, dtypes=DTYPES)


@dataclass(frozen=True)
class DenseAttention:
    """softmax(capped(scale · q·k) + bias) V over a range of keys for each query.

    capped(s) = soft_cap · tanh(s / soft_cap).

    Args:
        reference: computes the context of the tensors of `__call__` in plain PyTorch, for derivatives of its gradients.
        scale: the factor on q·k.
        begin: the first key that each query sees, int64 (B, H, Tq); all keys unless given.
        end: one past the last key, int64 (B, H, Tq).
        soft_cap: the bound of the scores before a bias; none unless given.
        dropout: the share of weights that is dropped.
        seed: of `attent.ops.dropout`.
    """

    reference: Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor | None], Tensor]
    scale: float
    begin: Tensor | None = None
    end: Tensor | None = None
    soft_cap: float | None = None
    dropout: float = 0.0
    seed: int = 0

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None, offset_bias: Tensor | None = None
    ) -> Tensor:
        """Return the context, (B, H, Tq, Dv), of queries (B, H, Tq, D), keys (B, G, Tk, D) and values (B, G, Tk, Dv).

        Args:
            query: in float32, bfloat16 or float16.
            key: the same.
            value: the same.
            bias: added to the scores, −∞ for hidden pairs, float32 (B|1, H|1, Tq|1, Tk); lower numbers than
                `LEAST_BIAS` count as that.
            offset_bias: what query i adds to its score with key j, −∞ for hidden pairs, at i − j + Tk − 1, float32
                (H|1, Tq + Tk − 1).
        """
        offset_bias = None if offset_bias is None else offset_bias.contiguous()
        tensors = query, key, value, bias, offset_bias
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
        statistics: Tensor | None = None,
    ) -> Tensor:
        """Return the context in the values' type; in memory a query's heads lie side by side.

        Args:
            query: these and the biases as in `__call__`.
            key: (B, G, Tk, D).
            value: (B, G, Tk, Dv).
            bias: of pairs.
            offset_bias: of offsets.
            statistics: receives the maximum of each row's scores and the inverse of its sum, float32 (2, B, H, Tq).
        """
        query, key, value = (_with_unit_stride(tensor) for tensor in (query, key, value))
        context = value.new_empty(query.shape[0], query.shape[2], query.shape[1], value.shape[3])
        layout = self._layout(query, key, value, bias, offset_bias)
        inputs = query, key, value, self.begin, self.end, bias, offset_bias
        self._run("attent_dense_attention_context", *inputs, context, statistics, layout)
        return context.transpose(1, 2)

    def backward(
        self,
        tensors: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None],
        context: Tensor,
        statistics: Tensor,
        gradient: Tensor,
        *,
        bias_needs_grad: bool = False,
        offset_bias_needs_grad: bool = False,
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of the tensors of `__call__`.

        The first three are laid out as the context that `forward` returned.
        """
        bias, offset_bias = tensors[3:]
        query, key, value, gradient = (_with_unit_stride(tensor) for tensor in (*tensors[:3], gradient))
        gradients = [tensor.new_empty(tensor.transpose(1, 2).shape) for tensor in (query, key, value)]
        of_bias = bias.new_empty(bias.shape) if bias is not None and bias_needs_grad else None
        of_offset_bias = (
            offset_bias.new_zeros(offset_bias.shape) if offset_bias is not None and offset_bias_needs_grad else None
        )
        layout = self._layout(query, key, value, bias, offset_bias, gradient, of_bias)
        inputs = query, key, value, self.begin, self.end, bias, offset_bias, context, statistics, gradient
        self._run("attent_dense_attention_gradients", *inputs, *gradients, of_bias, of_offset_bias, layout)
        # a softmax gives numbers this low weights only where a row has no higher one
        if of_bias is not None and bias is not None and bool((statistics[0] < LEAST_BIAS / 2).any()):
            of_bias.masked_fill_(bias < LEAST_BIAS, 0.0)
        return *(tensor.transpose(1, 2) for tensor in gradients), of_bias, of_offset_bias

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
        """Return the sizes, types and strides of all tensors, 64-bit integers."""
        (batch, heads, queries, width), (_, groups, keys, _) = query.shape, key.shape
        sizes = batch, heads, groups, queries, keys, width, value.shape[3]
        types = [DTYPES.index(tensor.dtype) for tensor in (query, key, value, value)]
        strides: list[int] = [stride for tensor in (query, key, value) for stride in tensor.stride()[:3]]
        for tensor in (gradient, self.begin, self.end):
            strides += (0, 0, 0) if tensor is None else tensor.stride()[:3]
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


def _strides_of_shared(bias: Tensor | None) -> list[int]:
    """Return the strides of a bias, 0 along axes of one number, which all share."""
    if bias is None:
        return [0, 0, 0, 0]
    return [0 if size == 1 else stride for size, stride in zip(bias.shape, bias.stride(), strict=True)]


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
        attention: DenseAttention,
    ) -> Tensor:
        statistics = query.new_empty(2, *query.shape[:3], dtype=torch.float32)
        context = attention.forward(query, key, value, bias, offset_bias, statistics)
        ctx.save_for_backward(query, key, value, bias, offset_bias, context, statistics)
        ctx.attention = attention
        return context

    @staticmethod
    @no_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        # read once, as activation checkpoints demand
        *tensors, context, statistics = ctx.saved_tensors
        bias_needs_grad, offset_bias_needs_grad = ctx.needs_input_grad[3:5]
        if needs_double_backward(gradient):
            needs_grad = True, True, True, bias_needs_grad, offset_bias_needs_grad
            return *double_backward(ctx.attention.reference, tensors, gradient, needs_grad), None
        gradients = ctx.attention.backward(
            tuple(tensors), context, statistics, gradient,
            bias_needs_grad=bias_needs_grad, offset_bias_needs_grad=offset_bias_needs_grad,
        )  # fmt: skip
        return *gradients, None
