"""Dropout whose mask costs little on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.ops.dropout import drops
from attent.ops.eligibility import can_run_native, needs_plain_torch

# Four elements share one 64-bit random number: PyTorch draws one for each.
BITS = 16
# Features from which on a sweep repays the hashing of its rows and columns.
MANY = 2**15


class Dropout(nn.Module):
    """Sets a share of the features to zero while training, and scales the others up so that the mean stays.

    Many float32 features on a CPU the extension goes through in one sweep, and in another for the gradients: which stay is the
    hash of `attent.ops.dropout`, of a seed from torch's generator. Elsewhere random numbers come from that generator, and on
    a CPU the share is rounded to a multiple of 1/65,536, and the scale with it.

    Source: Srivastava et al. (2014), JMLR 15.

    Args:
        share: 0 to 1, 1 excluded.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    @property
    def active_share(self) -> float:
        """The share that is dropped now: 0 while evaluating."""
        return self.share if self.training else 0.0

    def forward(self, features: Tensor) -> Tensor:
        """Features of any shape → the same shape."""
        if not self.training or not self.share:
            return features
        if features.device.type != "cpu":
            return F.dropout(features, self.share)
        if features.numel() >= MANY and can_run_native(features) and not torch.is_inference_mode_enabled():
            return _Dropped.apply(features, self.share, int(torch.randint(2**31 - 1, ())))
        dropped = round(self.share * 2**BITS)
        words = torch.empty(-(-features.numel() * BITS // 64), dtype=torch.int64).random_(-(2**63), None)
        drawn = words.view(torch.int16)[: features.numel()].view(features.shape)
        return features.masked_fill(drawn < dropped - 2 ** (BITS - 1), 0.0) * (2**BITS / (2**BITS - dropped))

    def extra_repr(self) -> str:
        """The share, for print."""
        return f"{self.share:g}"


class _Dropped(torch.autograd.Function):
    """Linear, so that its gradient is itself: of any order."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, share: float, seed: int) -> Tensor:
        ctx.share, ctx.seed = share, seed
        width = features.shape[-1] if features.dim() else 1
        rows = features.contiguous().view(1, -1, width)
        found = torch.empty_like(rows)
        drops(rows.shape[1], width, share, seed).drop(rows, slice(0, 1), slice(None), found)
        return found.view(features.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if needs_plain_torch(gradient):
            width = gradient.shape[-1] if gradient.dim() else 1
            kept = drops(gradient.numel() // width, width, ctx.share, ctx.seed).kept().view(gradient.shape)
            return gradient * kept / (1.0 - ctx.share), None, None
        return _Dropped.apply(gradient, ctx.share, ctx.seed), None, None
