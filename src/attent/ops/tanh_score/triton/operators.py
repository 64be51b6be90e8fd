"""softmax (v·tanh(q' + k')) V as a PyTorch operator, for queries that each see one range of keys.

It uses the kernels in `attention`. Triton is imported when the operator first runs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from attent.ops.autograd import double_backward
from attent.ops.eligibility import needs_plain_torch
from attent.ops.tanh_score.eager import plain_scores


@torch.library.custom_op("attent::tanh_attention", mutates_args=())
def tanh_attention(
    query: Tensor, key: Tensor, v: Tensor, value: Tensor, key_begin: Tensor, key_end: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the contexts (B, H, Tq, Dv) and each row's log-sum-exp (B, H, Tq), −∞ for a query that sees no key.

    See `attention.forward`.
    """
    from attent.ops.tanh_score.triton import attention

    return attention.forward(query, key, v, value, key_begin, key_end)


@tanh_attention.register_fake
def _(
    query: Tensor, key: Tensor, v: Tensor, value: Tensor, key_begin: Tensor, key_end: Tensor
) -> tuple[Tensor, Tensor]:
    return value.new_empty(*query.shape[:3], value.shape[3]), query.new_empty(query.shape[:3], dtype=torch.float32)


@torch.library.custom_op("attent::tanh_attention_gradients", mutates_args=())
def tanh_attention_gradients(
    query: Tensor, key: Tensor, v: Tensor, value: Tensor, key_begin: Tensor, key_end: Tensor,
    context: Tensor, sums: Tensor, gradient: Tensor, of_sums: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of q', k', v and the values, given those of the contexts and of the log-sum-exps."""
    from attent.ops.tanh_score.triton import attention

    return attention.backward(query, key, v, value, key_begin, key_end, context, sums, gradient, of_sums)


@tanh_attention_gradients.register_fake
def _(
    query: Tensor, key: Tensor, v: Tensor, value: Tensor, key_begin: Tensor, key_end: Tensor,
    context: Tensor, sums: Tensor, gradient: Tensor, of_sums: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    return tuple(tensor.new_empty(tensor.shape) for tensor in (query, key, v, value))  # pyright: ignore[reportReturnType]


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _backward(ctx: Any, gradient: Tensor | None, of_sums: Tensor | None) -> tuple[Tensor | None, ...]:
    context, sums = ctx.saved_tensors[-2:]
    gradient = torch.zeros_like(context) if gradient is None else gradient
    of_sums = torch.zeros_like(sums) if of_sums is None else of_sums
    if needs_plain_torch(gradient, of_sums):
        key_begin, key_end = ctx.saved_tensors[4:6]
        plain = partial(_plain, key_begin=key_begin, key_end=key_end)
        return *double_backward(plain, ctx.saved_tensors[:4], (gradient, of_sums)), None, None
    return *torch.ops.attent.tanh_attention_gradients(*ctx.saved_tensors, gradient, of_sums), None, None


def _keep_for_second(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:6], *inputs[8:])


def _second_backward(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
    """Compute the second derivatives in plain PyTorch, which holds the whole table of scores.

    The contexts are a function of the other inputs, so they get no gradient of their own.
    """
    key_begin, end = ctx.saved_tensors[4:6]

    def gradients(*inputs: Tensor) -> tuple[Tensor, ...]:
        return double_backward(partial(_plain, key_begin=key_begin, key_end=end), inputs[:4], inputs[4:])

    results = double_backward(gradients, (*ctx.saved_tensors[:4], *ctx.saved_tensors[6:]), tangents)
    return *results[:4], None, None, None, None, *results[4:]


def _plain(
    query: Tensor, key: Tensor, v: Tensor, value: Tensor, key_begin: Tensor, key_end: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute `tanh_attention` step by step in plain PyTorch."""
    key_index = torch.arange(key.shape[2], device=key.device)
    hidden = (key_index < key_begin[..., None]) | (key_index >= key_end[..., None])  # (B, H, Tq, Tk)
    is_empty = key_end <= key_begin
    exact = torch.promote_types(query.dtype, torch.float32)
    sides = query.to(exact), key.to(exact), v.to(exact)
    scores = plain_scores(*sides) if needs_plain_torch() else torch.ops.attent.tanh_scores(*sides)
    # a finite number, so that a fully masked row has finite gradients
    filled = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    weights, sums = filled.softmax(-1).masked_fill(hidden, 0.0), filled.logsumexp(-1)
    return (weights @ value.to(exact)).to(value.dtype), sums.masked_fill(is_empty, -torch.inf)


tanh_attention.register_autograd(_backward, setup_context=_keep)
tanh_attention_gradients.register_autograd(_second_backward, setup_context=_keep_for_second)
