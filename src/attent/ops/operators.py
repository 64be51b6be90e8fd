"""Dense attention as PyTorch operators, which torch.compile holds in its graphs.

`attent::dense_attention` and its gradients, `attent::dense_attention_backward`, call the compiled library. What depends
on the values or the strides of tensors is decided when they run, so that a graph has no breaks, and its sizes may vary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attent.ops.dense_attention import DenseAttention


@torch.library.custom_op("attent::dense_attention", mutates_args=(), device_types="cpu")
def dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    offset_bias: Tensor | None,
    sink: Tensor | None,
    begin: Tensor | None,
    end: Tensor | None,
    seed: Tensor | None,
    scale: float,
    soft_cap: float | None,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Return what `DenseAttention.forward` computes: the context and the statistics of its rows.

    Args: those of `DenseAttention` and of its call; the seed is a tensor with one number.
    """
    statistics = query.new_empty(2, *query.shape[:3], dtype=torch.float32)
    attention = _attention(begin, end, seed, scale, soft_cap, dropout)
    return attention.forward(query, key, value, bias, offset_bias, sink, statistics), statistics


@torch.library.custom_op("attent::dense_attention_backward", mutates_args=(), device_types="cpu")
def dense_attention_backward(
    gradient: Tensor,
    context: Tensor,
    statistics: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    offset_bias: Tensor | None,
    sink: Tensor | None,
    begin: Tensor | None,
    end: Tensor | None,
    seed: Tensor | None,
    scale: float,
    soft_cap: float | None,
    dropout: float,
    needs_grad: list[bool],
) -> list[Tensor]:
    """Return the gradients of queries, keys and values, and of those of the biases and the sink that need one."""
    context = context.transpose(1, 2).contiguous().transpose(1, 2)
    attention = _attention(begin, end, seed, scale, soft_cap, dropout)
    tensors = query, key, value, bias, offset_bias, sink
    gradients = attention.backward(tensors, context, statistics, gradient, needs_grad)
    return [tensor for tensor in gradients if tensor is not None]


def _attention(
    begin: Tensor | None, end: Tensor | None, seed: Tensor | None, scale: float, soft_cap: float | None, dropout: float
) -> DenseAttention:
    return DenseAttention(scale, begin, end, soft_cap, dropout, 0 if seed is None else int(seed))


@dense_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    batch, heads, queries, _ = query.shape
    context = value.new_empty(batch, queries, heads, value.shape[3]).transpose(1, 2)
    return context, query.new_empty(2, batch, heads, queries, dtype=torch.float32)


@dense_attention_backward.register_fake
def _(gradient: Tensor, context: Tensor, statistics: Tensor, *inputs: Any) -> list[Tensor]:
    side_by_side = [tensor.new_empty(tensor.transpose(1, 2).shape).transpose(1, 2) for tensor in inputs[:3]]
    terms = zip(inputs[3:6], inputs[-1], strict=True)
    return side_by_side + [term.new_empty(term.shape) for term, needs_grad in terms if needs_grad]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, *inputs[:9])
    ctx.options = inputs[9:]


def _backward(ctx: Any, gradient: Tensor, _: None) -> tuple[Tensor | None, ...]:
    needs_grad = list(ctx.needs_input_grad[3:6])
    gradients = iter(torch.ops.attent.dense_attention_backward(gradient, *ctx.saved_tensors, *ctx.options, needs_grad))
    inputs = [next(gradients) if needs else None for needs in (True, True, True, *needs_grad)]
    return *inputs, *[None] * 6


dense_attention.register_autograd(_backward, setup_context=_save)
