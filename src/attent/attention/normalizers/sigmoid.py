"""The sigmoid of each score."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from attent.attention.base import Normalizer


@dataclass(frozen=True)
class Sigmoid(Normalizer):
    """σ(sᵢ + b): every weight lies between 0 and 1, independent of the other keys; rows may have any sum.

    Ramapuram et al. 2024, "Theory, Analysis, and Best Practices for Sigmoid Self-Attention", eq. 3 (arXiv:2409.04431),
    who set b = −log Tk so that a row sums to about one at the start of training.

    Args:
        bias: b, in nats.
    """

    bias: float = 0.0
    aliases: ClassVar[tuple[str, ...]] = ("logistic",)
    is_distribution: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = False

    def normalize(self, scores: Tensor) -> Tensor:
        """Return the sigmoid of the scores (…, Tk)."""
        return (scores + self.bias).sigmoid()
