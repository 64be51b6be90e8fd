"""The 1.5-entmax."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import Normalizer


@dataclass(frozen=True)
class Entmax15(Normalizer):
    """The 1.5-entmax, between softmax and sparsemax: max(sᵢ/2 − τ, 0)² with τ such that they sum to one.

    Peters, Niculae and Martins 2019, "Sparse Sequence-to-Sequence Models", eq. 7 and appendix B.2, α = 1.5
    (arXiv:1905.05702).
    """

    aliases: ClassVar[tuple[str, ...]] = ("entmax",)

    def normalize(self, scores: Tensor) -> Tensor:
        """Return the 1.5-entmax of each row of scores (…, Tk)."""
        # as τ ≥ max − 1, halves more than 1 below the maximum have weight zero; clamped, they cannot overflow
        halves = ((scores - scores.amax(-1, keepdim=True).detach()) / 2).clamp(min=-2.0)
        with torch.no_grad():
            ordered = halves.sort(-1, descending=True).values
            rank = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
            mean = ordered.cumsum(-1) / rank
            spread = ordered.square().cumsum(-1) - rank * mean.square()  # Σ(x − mean)² of the rank largest
            threshold = mean - ((1 - spread) / rank).clamp(min=0.0).sqrt()
            # a row of NaN has no support; an index of −1 would fail
            size = (threshold <= ordered).sum(-1, keepdim=True).clamp(min=1)
            support = (halves >= ordered.gather(-1, size - 1)).to(scores.dtype)
        # again, over the support only, where the argument of the root is positive and its gradient finite
        size = support.sum(-1, keepdim=True)
        mean = (halves * support).sum(-1, keepdim=True) / size
        spread = ((halves - mean).square() * support).sum(-1, keepdim=True)
        threshold = mean - ((1 - spread) / size).clamp(min=torch.finfo(scores.dtype).tiny).sqrt()
        return (halves - threshold).clamp(min=0.0).square()
