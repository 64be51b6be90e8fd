"""Scores v·tanh(q' + k') as PyTorch operators: differentiable any number of times, and opaque to torch.compile.

`attent::tanh_scores` and `attent::tanh_gradients` use the fastest version for the device: the compiled library on a
CPU, Triton on a GPU, else plain PyTorch, a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attent.ops import native
from attent.ops import tanh_score as eager
from attent.ops.autograd import double_backward
from attent.ops.eligibility import can_run_triton, needs_plain_torch

# Each thread of the library processes a run of features. With fewer runs than TASKS, rows are split into slabs, each
# with its own sums of the keys' gradients; only the shapes decide, so the sums do not depend on the number of threads.
FEATURES, TASKS, SLAB_ROWS = 16, 8, 64


def _version(tensor: Tensor) -> tuple[Callable[..., Tensor], Callable[..., tuple[Tensor, Tensor, Tensor]]]:
    """Return the fastest functions for scores and gradients, given a tensor's device and dtype."""
    if can_run_triton(tensor.device, tensor.dtype):
        from attent.ops.tanh_score.triton import tiles

        return tiles.scores, tiles.gradients
    if tensor.device.type == "cpu" and tensor.dtype == torch.float32 and native.library() is not None:
        return native_scores, native_gradients
    return eager.scores, eager.gradients


def native_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """Return v·tanh(q' + k') of every pair, computed by the compiled library; float32, shapes as in `tanh_scores`.

    Raises:
        MemoryError: the library ran out of memory.
    """
    query, key, v = (tensor.detach().contiguous() for tensor in (query, key, v))
    scores = query.new_empty(*query.shape[:-1], key.shape[-2])
    if scores.numel():
        sizes = (query.shape[0] * query.shape[1], v.shape[0], query.shape[2], key.shape[2], query.shape[3])
        native.run("attent_tanh_score", (query, key, v, scores), *sizes)
    return scores


def native_gradients(query: Tensor, key: Tensor, v: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q', k' and v from that of the scores (B, H, Tq, Tk), computed by the compiled library.

    Raises:
        MemoryError: the library ran out of memory.
    """
    query, key, v, gradient = (tensor.detach().contiguous() for tensor in (query, key, v, gradient))
    if not gradient.numel():
        return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(v)
    batch, heads, queries, width = query.shape
    runs = batch * heads * max(-(-width // FEATURES), 1)
    slabs = max(min(-(-TASKS // runs), -(-queries // SLAB_ROWS)), 1)
    dq, dk = torch.empty_like(query), query.new_empty(batch, heads, slabs, key.shape[2], width)
    dv = query.new_empty(batch, heads, slabs, width)
    sizes = (batch * heads, v.shape[0], queries, key.shape[2], width, slabs)
    native.run("attent_tanh_score_gradients", (query, key, v, gradient, dq, dk, dv), *sizes)
    return (
        dq,
        dk[:, :, 0] if slabs == 1 else dk.sum(2),
        dv.sum((0, 2)) if v.shape[0] == heads else dv.sum((0, 1, 2))[None],
    )


@torch.library.custom_op("attent::tanh_scores", mutates_args=())
def tanh_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """Return v·tanh(q' + k') of queries (B, H, Tq, D), keys (B, H, Tk, D) and v (H|1, D): (B, H, Tq, Tk)."""
    return _version(query)[0](query, key, v)


@tanh_scores.register_fake
def _(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    return query.new_empty(*query.shape[:-1], key.shape[-2])


@torch.library.custom_op("attent::tanh_gradients", mutates_args=())
def tanh_gradients(query: Tensor, key: Tensor, v: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q', k' and v, given that of the scores."""
    return _version(query)[1](query, key, v, gradient)


@tanh_gradients.register_fake
def _(query: Tensor, key: Tensor, v: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(v)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _scores_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
    if needs_plain_torch(gradient):
        return double_backward(eager.plain_scores, ctx.saved_tensors, gradient)
    return torch.ops.attent.tanh_gradients(*ctx.saved_tensors, gradient)


def _gradients_backward(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, ...]:
    """Compute in plain PyTorch, a few rows at a time."""
    query, key, v, gradient = ctx.saved_tensors
    dq, dk, dv = (
        torch.zeros_like(like) if tensor is None else tensor
        for tensor, like in zip(tangents, (query, key, v), strict=True)
    )

    def gradients(*inputs: Tensor) -> tuple[Tensor, ...]:
        return double_backward(eager.plain_scores, inputs[:3], inputs[3])

    step = eager.rows_at_once(key)
    parts = [
        double_backward(gradients, (rows, key, v, gradient_rows), (dq_rows, dk, dv))
        for rows, gradient_rows, dq_rows in zip(
            *(tensor.split(step, 2) for tensor in (query, gradient, dq)), strict=True
        )
    ]
    of_query, of_key, of_v, of_gradient = zip(*parts, strict=True)
    return torch.cat(of_query, 2), sum(of_key), sum(of_v), torch.cat(of_gradient, 2)  # pyright: ignore[reportReturnType]


tanh_scores.register_autograd(_scores_backward, setup_context=_save)
tanh_gradients.register_autograd(_gradients_backward, setup_context=_save)
