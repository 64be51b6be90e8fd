"""v·tanh(q' + k') as operators of PyTorch's: differentiable twice and more, and opaque to its compiler.

`attent::tanh_scores` and `attent::tanh_gradients` take the quickest way there is for the device: the compiled extension on a
CPU, Triton on a GPU, else plain PyTorch a few rows at a time.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from attent.ops.autograd import plain_gradients
from attent.ops.eligibility import needs_plain_torch
from attent.ops.tanh_score import eager, native
from attent.ops.tanh_score.triton import operators


def _way(tensor: Tensor) -> ModuleType:
    """What computes for such tensors."""
    if operators.serves(tensor.device, tensor.dtype):
        from attent.ops.tanh_score.triton import tiles

        return tiles
    compiled = tensor.device.type == "cpu" and tensor.dtype == torch.float32 and native.why_not() is None
    return native if compiled else eager


@torch.library.custom_op("attent::tanh_scores", mutates_args=())
def tanh_scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """v·tanh(q' + k') of queries (B, H, Tq, D), keys (B, H, Tk, D) and v (H|1, D): (B, H, Tq, Tk)."""
    return _way(query).scores(query, key, v)


@tanh_scores.register_fake
def _(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    return query.new_empty(*query.shape[:-1], key.shape[-2])


@torch.library.custom_op("attent::tanh_gradients", mutates_args=())
def tanh_gradients(query: Tensor, key: Tensor, v: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q', k' and v, given that of the scores."""
    return _way(query).gradients(query, key, v, gradient)


@tanh_gradients.register_fake
def _(query: Tensor, key: Tensor, v: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(v)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _scores_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
    if needs_plain_torch(gradient):
        return plain_gradients(eager.plain_scores, ctx.saved_tensors, gradient)
    return torch.ops.attent.tanh_gradients(*ctx.saved_tensors, gradient)


def _gradients_backward(ctx: Any, *along: Tensor | None) -> tuple[Tensor, ...]:
    """By plain PyTorch: what the gradients were multiplied with is Σ g·h, h being the scores' derivative along (dq, dk, dv)."""
    inputs = ctx.saved_tensors
    along = tuple(torch.zeros_like(like) if tensor is None else tensor for tensor, like in zip(along, inputs, strict=False))
    if any(needs_plain_torch(tensor) for tensor in along):
        # they may be many at once, and nothing of them be differentiated here
        return plain_gradients(lambda *sides: plain_gradients(eager.plain_scores, sides[:3], sides[3]), inputs, along)

    def product(query: Tensor, key: Tensor, v: Tensor, gradient: Tensor) -> Tensor:
        return (gradient * eager.by_rows(_slope, (query, along[0]), key, v, *along[1:])).sum()

    return plain_gradients(product, inputs, inputs[0].new_ones(()))


def _slope(query: Tensor, dq: Tensor, key: Tensor, v: Tensor, dk: Tensor, dv: Tensor) -> Tensor:
    """The derivative of the scores along (dq, dk, dv), (B, H, Tq, Tk)."""
    hidden = torch.tanh(query[..., :, None, :] + key[..., None, :, :])
    inner = (1 - hidden.square()) * (dq[..., :, None, :] + dk[..., None, :, :])
    return (inner * v[:, None, None] + hidden * dv[:, None, None]).sum(-1)


tanh_scores.register_autograd(_scores_backward, setup_context=_keep)
tanh_gradients.register_autograd(_gradients_backward, setup_context=_keep)
