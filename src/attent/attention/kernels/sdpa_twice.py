"""PyTorch's attention on a CPU with second derivatives, at which its fused kernel raises; plain products where these are quicker."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention.kernels import thresholds

# What torch._fused_sdp_choice calls the kernel that is fused on a CPU.
FUSED = 1


def twice_differentiable(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """scaled_dot_product_attention, through whose gradients a graph can be made.

    Args:
        query: (B, H, Tq, D).
        key: (B, H, Tk, D).
        value: (B, H, Tk, Dv).
        mask: what is added to the scores, or which pairs may attend; or None.
        causal: whether query i sees the keys up to i alone.
        scale: the factor on q·k.
    """
    if not _wanted(query, key, value, mask):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, scale=scale)
    if query.shape[-2] * key.shape[-2] <= thresholds.SHORT:
        return _products(query, key, value, mask, causal, scale)
    choice = torch._fused_sdp_choice(query, key, value, mask, 0.0, causal, scale=scale)  # pyright: ignore[reportPrivateImportUsage]
    if choice == FUSED:
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, dtype=query.dtype).masked_fill_(~mask, -torch.inf)
        return _Fused.apply(query, key, value, mask, causal, scale)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, scale=scale)


def _wanted(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether gradients are, on a CPU, which the fused kernel would take care of."""
    if not torch.is_grad_enabled() or not (query.requires_grad or key.requires_grad or value.requires_grad):
        return False
    if query.device.type != "cpu" or (mask is not None and mask.requires_grad) or torch.compiler.is_compiling():
        return False
    # vmap and its kin go through PyTorch's own
    return torch._C._functorch.peek_interpreter_stack() is None  # pyright: ignore[reportAttributeAccessIssue]


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
        given = (query, key, value, 0.0, causal)
        context, normaliser = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*given, attn_mask=mask, scale=scale)
        ctx.save_for_backward(query, key, value, mask, context, normaliser)
        ctx.causal, ctx.scale = causal, scale
        return context

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, mask, context, normaliser = ctx.saved_tensors
        if torch.is_grad_enabled():
            # other names for them: one may have been computed of another, and that is not to be gone through here
            query, key, value = (
                tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in (query, key, value)
            )
            again = _products(query, key, value, mask, ctx.causal, ctx.scale)
            found = torch.autograd.grad(again, (query, key, value), gradient, create_graph=True)
        else:
            found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                gradient, query, key, value, context, normaliser, 0.0, ctx.causal, attn_mask=mask, scale=ctx.scale
            )
        return *found, None, None, None


def _products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    exact = value.to(torch.promote_types(value.dtype, torch.float32))
    scores = (query.to(exact.dtype) * scale) @ key.to(exact.dtype).mT
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return (torch.softmax(scores, -1) @ exact).to(value.dtype)
