"""The sparsemax."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import Normalizer


@dataclass(frozen=True)
class Sparsemax(Normalizer):
    """The point of the simplex that is nearest to the scores: max(sᵢ − τ, 0) with τ such that they sum to one.

    Martins and Astudillo 2016, "From Softmax to Sparsemax", eq. 2–4 and algorithm 1 (arXiv:1602.02068).
    """

    aliases: ClassVar[tuple[str, ...]] = ()

    def normalize(self, scores: Tensor) -> Tensor:
        """Return the sparsemax of each row of scores (…, Tk)."""
        # as τ ≥ max − 1, scores more than 1 below the maximum have weight zero; clamped, they cannot overflow
        centered = (scores - scores.amax(-1, keepdim=True).detach()).clamp(min=-2.0)
        with torch.no_grad():
            ordered = centered.sort(-1, descending=True).values
            rank = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
            # (…, 1) keys in the support; a row of NaN has none, and an index of −1 would fail
            size = (1 + rank * ordered > ordered.cumsum(-1)).sum(-1, keepdim=True).clamp(min=1)
            support = centered >= ordered.gather(-1, size - 1)
            size = support.sum(-1, keepdim=True).to(scores.dtype)
        threshold = ((centered * support).sum(-1, keepdim=True) - 1) / size
        # relu, unlike clamp, gives a score exactly at τ no gradient: it has no weight, and is outside the support
        return torch.relu(centered - threshold)
