"""Dropout whose mask costs little on a CPU."""

from __future__ import annotations

from torch import Tensor, nn

from attent.ops.dropout import dropout


class Dropout(nn.Module):
    """Sets a share of the features to zero while training, and scales the others up so that the mean stays.

    Many float32 features on a CPU are dropped by the hash of `attent.ops.dropout`, with a seed from torch's generator.
    Elsewhere random numbers come from that generator, and on a CPU the share is rounded to a multiple of 1/65,536, and
    the scale with it.

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
        return dropout(features, self.share) if self.active_share else features

    def extra_repr(self) -> str:
        """The share, for print."""
        return f"{self.share:g}"
