"""v·tanh(q' + k') as operators of PyTorch's: differentiable twice and more, and opaque to its compiler.

`attent::tanh_scores` and `attent::tanh_gradients` take the quickest way there is for the device: the compiled extension on a
CPU, Triton on a GPU, else plain PyTorch a few rows at a time.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from attent.attention.kernels import tanh_cpu, tanh_eager
from attent.attention.kernels.triton import operators
from attent.attention.parts import Side, TanhScore


def between(score: TanhScore, query: Side, key: Side) -> Tensor:
    """The scores of two lowered sides, (B, H, Tq, Tk); as `score.between`, which serves forward-mode derivatives."""
    ours, theirs = query.features, key.features
    v = score.direction(ours).reshape(-1, ours.shape[-1])
    if any(has_tangent(tensor) for tensor in (ours, theirs, v)):
        # an operator of one's own would hand out tangents of zero
        return score.between(query, key)
    return torch.ops.attent.tanh_scores(ours, theirs, v)


def has_tangent(tensor: Tensor) -> bool:
    """Whether a forward-mode derivative is on its way through it."""
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None  # pyright: ignore[reportPrivateUsage]


def _way(tensor: Tensor) -> ModuleType:
    """What computes for such tensors."""
    if operators.serves(tensor.device, tensor.dtype):
        from attent.attention.kernels.triton import tiles

        return tiles
    compiled = tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tanh_cpu.why_not() is None
    return tanh_cpu if compiled else tanh_eager


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


def _scores_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.attent.tanh_gradients(*ctx.saved_tensors, gradient)


def _gradients_backward(ctx: Any, dq: Tensor | None, dk: Tensor | None, dv: Tensor | None) -> tuple[Tensor, ...]:
    """By plain PyTorch: what the gradients were multiplied with is Σ g·h, h being the scores' derivative along (dq, dk, dv)."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # other names for them: one may have been computed of another, and that is not to be gone through here
        inputs = [tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        query, key, v, gradient = inputs
        along = [torch.zeros_like(like) if tensor is None else tensor for tensor, like in zip((dq, dk, dv), inputs, strict=False)]
        step = max(tanh_eager.CHUNK // max(key.numel(), 1), 1)
        parts = zip(query.split(step, 2), along[0].split(step, 2), strict=True)
        slope = torch.cat([checkpoint(_slope, row, key, v, dq, *along[1:], use_reentrant=False) for row, dq in parts], 2)
        return torch.autograd.grad((gradient * slope).sum(), inputs, create_graph=again)


def _slope(query: Tensor, key: Tensor, v: Tensor, dq: Tensor, dk: Tensor, dv: Tensor) -> Tensor:
    """The derivative of the scores along (dq, dk, dv), (B, H, Tq, Tk)."""
    hidden = torch.tanh(query[..., :, None, :] + key[..., None, :, :])
    inner = (1 - hidden.square()) * (dq[..., :, None, :] + dk[..., None, :, :])
    return (inner * v[:, None, None] + hidden * dv[:, None, None]).sum(-1)


tanh_scores.register_autograd(_scores_backward, setup_context=_keep)
tanh_gradients.register_autograd(_gradients_backward, setup_context=_keep)
