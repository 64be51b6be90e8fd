"""Attention of dot products under softmax by the compiled library, by tiles of keys, in memory that grows with the length.

Queries, keys and values are read where they lie, the heads of a projection side by side, and the context and gradients are written so:
neither splitting nor merging heads copies a number. Beside these the backward needs the context, and two numbers of each row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attent.ops import native
from attent.ops.autograd import double_backward, needs_double_backward, no_autocast
from attent.ops.dropout import WORD, threshold
from attent.ops.eligibility import can_run_native

DTYPES = (torch.float32, torch.bfloat16)
# Gradients of rows whose largest score is beyond this are not the kernel's.
LARGE_SCORE = 64.0


def is_compiled() -> bool:
    """Return whether the compiled library is there."""
    return native.library() is not None


def can_run(*tensors: Tensor) -> bool:
    """Return whether the kernel takes tensors of these types here and now: no compiler, dispatch mode or transform sees them."""
    return can_run_native(*tensors, dtypes=DTYPES)


@dataclass(frozen=True)
class DenseAttention:
    """softmax(scale · q·k + bias) V over a range of keys for each query.

    Args:
        reference: computes the context of query, key and value in plain PyTorch, for derivatives of its gradients.
        scale: the factor on q·k.
        begin: the first key that each query sees, int64 (B, H, Tq); all keys unless given.
        end: one past the last key, int64 (B, H, Tq).
        bias: added to the scores, −∞ for hidden pairs, float32 (B, H, Tk, Tq|1).
        dropout: the share of weights that is dropped.
        seed: of `attent.ops.dropout`.
    """

    reference: Callable[[Tensor, Tensor, Tensor], Tensor]
    scale: float
    begin: Tensor | None = None
    end: Tensor | None = None
    bias: Tensor | None = None
    dropout: float = 0.0
    seed: int = 0

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the context, (B, H, Tq, Dv), of queries (B, H, Tq, D), keys (B, G, Tk, D) and values (B, G, Tk, Dv)."""
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value)):
            return _DenseAttention.apply(query, key, value, self)
        return self.forward(query, key, value)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, statistics: Tensor | None = None) -> Tensor:
        """Return the context in the values' type; in memory a query's heads lie side by side.

        Args:
            query: (B, H, Tq, D).
            key: (B, G, Tk, D).
            value: (B, G, Tk, Dv).
            statistics: receives the maximum of each row's scores and the inverse of its sum, float32 (2, B, H, Tq).
        """
        query, key, value = (_with_unit_stride(tensor) for tensor in (query, key, value))
        context = value.new_empty(query.shape[0], query.shape[2], query.shape[1], value.shape[3])
        inputs, layout = (query, key, value, self.begin, self.end, self.bias), self._layout(query, key, value)
        self._run("attent_dense_attention_context", *inputs, context, statistics, layout)
        return context.transpose(1, 2)

    def backward(
        self, query: Tensor, key: Tensor, value: Tensor, context: Tensor, statistics: Tensor, gradient: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the gradients of query, key and value, laid out as the context that `forward` returned."""
        query, key, value, gradient = (_with_unit_stride(tensor) for tensor in (query, key, value, gradient))
        gradients = [tensor.new_empty(tensor.transpose(1, 2).shape) for tensor in (query, key, value)]
        inputs, layout = (query, key, value, self.begin, self.end, self.bias), self._layout(query, key, value, gradient)
        self._run("attent_dense_attention_gradients", *inputs, context, statistics, gradient, *gradients, layout)
        return tuple(tensor.transpose(1, 2) for tensor in gradients)

    def _layout(self, query: Tensor, key: Tensor, value: Tensor, gradient: Tensor | None = None) -> Tensor:
        """Return the sizes, types and strides of all tensors."""
        (batch, heads, queries, width), (_, groups, keys, _) = query.shape, key.shape
        sizes = batch, heads, groups, queries, keys, width, value.shape[3]
        is_half = [tensor.dtype == torch.bfloat16 for tensor in (query, key, value, value)]
        strides: list[int] = [stride for tensor in (query, key, value) for stride in tensor.stride()[:3]]
        for tensor in (gradient, self.begin, self.end):
            strides += (0, 0, 0) if tensor is None else tensor.stride()[:3]
        strides += (0, 0, 0, 0) if self.bias is None else (*self.bias.stride()[:3], int(self.bias.shape[3] == queries))
        return torch.tensor([*sizes, *is_half, *strides], dtype=torch.int64)

    def _run(self, name: str, *tensors: Tensor | None) -> None:
        hash_threshold = threshold(self.dropout) if self.dropout else 0
        native.run(name, tensors, self.seed & WORD, hash_threshold, 1.0 / (1.0 - self.dropout), self.scale)


def _with_unit_stride(tensor: Tensor) -> Tensor:
    """Return the tensor with contiguous features."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


class _DenseAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, attention: DenseAttention) -> Tensor:
        statistics = query.new_empty(2, *query.shape[:3], dtype=torch.float32)
        context = attention.forward(query, key, value, statistics)
        ctx.save_for_backward(query, key, value, context, statistics)
        ctx.attention = attention
        return context

    @staticmethod
    @no_autocast
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        # read once, as activation checkpoints demand
        query, key, value, context, statistics = ctx.saved_tensors
        maxima = statistics[0]
        # Plain steps too where scores are large: the kernel takes Σ w·dw from the context, whose rounding large keys would multiply.
        if needs_double_backward(gradient) or bool(((maxima.abs() > LARGE_SCORE) & maxima.isfinite()).any()):
            return *double_backward(ctx.attention.reference, (query, key, value), gradient), None
        return *ctx.attention.backward(query, key, value, context, statistics, gradient), None
