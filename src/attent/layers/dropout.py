"""Dropout whose mask costs little on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.ops.dropout import dropout
from attent.ops.eligibility import can_run_native

# Four elements share one 64-bit random number; PyTorch draws one for each.
BITS = 16
# Features from which on the library's sweep repays the hashing of its rows and columns.
MIN_NATIVE = 2**15


class Dropout(nn.Module):
    """Sets a share of the features to zero while training, and scales the others up so that the mean stays.

    Many float32 features on a CPU are dropped by the hash of `attent.ops.dropout`, with a seed from torch's generator. Elsewhere random
    numbers come from that generator, and on a CPU the share is rounded to a multiple of 1/65,536, and the scale with it.

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
        if not self.active_share:
            return features
        if features.device.type != "cpu":
            return F.dropout(features, self.share)
        if features.numel() >= MIN_NATIVE and can_run_native(features) and not torch.is_inference_mode_enabled():
            return dropout(features, self.share, int(torch.randint(2**31 - 1, ())))
        threshold = round(self.share * 2**BITS)
        words = torch.empty(-(-features.numel() * BITS // 64), dtype=torch.int64).random_(-(2**63), None)
        bits = words.view(torch.int16)[: features.numel()].view(features.shape)
        return features.masked_fill(bits < threshold - 2 ** (BITS - 1), 0.0) * (2**BITS / (2**BITS - threshold))

    def extra_repr(self) -> str:
        """The share, for print."""
        return f"{self.share:g}"
