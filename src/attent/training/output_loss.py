"""The output layer and its cross entropy in one, a few tokens at a time: no tensor of every token's logits is ever held."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

# Logits that are held at a time, 2 MiB of float32, and tokens below which products lose their pace.
CHUNK, LEAST = 2**19, 64


def output_loss(features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The mean cross entropy of tokens told from features by a linear layer, in nats per token.

        −(1 − ε) log p(y) − ε/V Σ_v log p(v),   p = softmax(W x + b)

    Gradients are computed on the way, from each piece of logits while it is there. The product is that of the features'
    type, or of autocast's; what follows it is float32 at least.

    Source: Szegedy et al. (2016), §7, arXiv 1512.00567; Vaswani et al. (2017), §5.4, arXiv 1706.03762.

    Args:
        features: (N, E).
        weight: (V, E).
        bias: (V,) or None.
        target: the tokens to be told, (N,).
        label_smoothing: ε, 0 to 1.

    Returns:
        A scalar, float32 at least.
    """
    device = features.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else features.dtype
    return _OutputLoss.apply(features, weight, bias, target, label_smoothing, dtype, torch.is_grad_enabled())


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        wanted: bool,
    ) -> Tensor:
        ours, theirs = features.to(dtype), weight.to(dtype)
        exact = torch.promote_types(dtype, torch.float32)
        total = torch.zeros((), dtype=exact, device=features.device)
        by_feature = torch.empty_like(ours) if wanted else None
        by_weight = torch.zeros(weight.shape, dtype=exact, device=weight.device) if wanted else None
        by_bias = torch.zeros(weight.shape[0], dtype=exact, device=weight.device) if wanted else None
        size = max(CHUNK // weight.shape[0], LEAST)
        for rows in range(0, len(target), size):
            some, told = ours[rows : rows + size], target[rows : rows + size, None]
            logits = (some @ theirs.T).to(exact)
            if bias is not None:
                logits += bias
            logs = F.log_softmax(logits, -1)
            total -= (1 - smoothing) * logs.gather(1, told).sum() + smoothing * logs.mean(-1).sum()
            if by_feature is not None and by_weight is not None and by_bias is not None:
                slope = logs.exp_().sub_(smoothing / weight.shape[0])
                slope.scatter_add_(1, told, slope.new_full((1, 1), smoothing - 1).expand(told.shape))
                by_bias += slope.sum(0)
                slope = slope.to(dtype)
                torch.mm(slope, theirs, out=by_feature[rows : rows + size])
                by_weight += slope.T @ some
        share = 1 / max(len(target), 1)
        ctx.save_for_backward(by_feature, by_weight, by_bias)
        ctx.types = (features.dtype, weight.dtype, None if bias is None else bias.dtype, share)
        return total * share

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        *types, share = ctx.types
        scale = gradient * share
        found = [None if dtype is None else (part * scale).to(dtype) for part, dtype in zip(ctx.saved_tensors, types, strict=True)]
        return *found, None, None, None, None
