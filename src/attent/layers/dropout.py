"""Dropout whose mask costs little on a CPU."""

from torch import Tensor, nn

from attent.ops.dropout import dropout


class Dropout(nn.Module):
    """Sets a random share of the features to zero during training, and scales up the others to keep the mean.

    Large float32 tensors on a CPU are dropped by the hash of `attent.ops.dropout`, with a seed from torch's generator.
    Otherwise the random numbers come from that generator; on a CPU the share, and the scale with it, is then rounded to
    a multiple of 1/65,536.

    Source: Srivastava et al. (2014), JMLR 15.

    Args:
        share: the dropout probability, from 0 to below 1.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    @property
    def active_share(self) -> float:
        """The current dropout probability: 0 during evaluation."""
        return self.share if self.training else 0.0

    def forward(self, features: Tensor) -> Tensor:
        """Apply dropout to features of any shape."""
        return dropout(features, self.share) if self.active_share else features

    def extra_repr(self) -> str:
        """Return the share, for `print`."""
        return f"{self.share:g}"
