"""Dropout whose mask costs little on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Four elements share one 64-bit random number: PyTorch draws one for each.
BITS = 16


class Dropout(nn.Module):
    """Sets a share of the features to zero while training, and scales the others up so that the mean stays.

    On a CPU the share is rounded to a multiple of 1/65,536, and the scale with it. Random numbers come from torch's generator.

    Source: Srivastava et al. (2014), JMLR 15.

    Args:
        share: 0 to 1, 1 excluded.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, features: Tensor) -> Tensor:
        """Features of any shape → the same shape."""
        if not self.training or not self.share:
            return features
        if features.device.type != "cpu":
            return F.dropout(features, self.share)
        dropped = round(self.share * 2**BITS)
        words = torch.empty(-(-features.numel() * BITS // 64), dtype=torch.int64).random_(-(2**63), None)
        drawn = words.view(torch.int16)[: features.numel()].view(features.shape)
        return features.masked_fill(drawn < dropped - 2 ** (BITS - 1), 0.0) * (2**BITS / (2**BITS - dropped))

    def extra_repr(self) -> str:
        """The share, for print."""
        return f"{self.share:g}"
