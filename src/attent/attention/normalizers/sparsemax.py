"""The sparsemax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import Normalizer


@dataclass(frozen=True)
class Sparsemax(Normalizer):
    """The point of the simplex nearest to the scores: max(sᵢ − τ, 0) with the τ for which they sum to one.

    Martins and Astudillo 2016, "From Softmax to Sparsemax", eq. 2–4 and algorithm 1 (arXiv:1602.02068).
    """

    aliases: ClassVar[tuple[str, ...]] = ()

    def normalize(self, scores: Tensor) -> Tensor:
        """The sparsemax of each row of scores (…, Tk)."""
        # τ ≥ max − 1, so scores more than 1 below the best have weight zero wherever they lie: clamped, they cannot overflow
        centred = (scores - scores.amax(-1, keepdim=True).detach()).clamp(min=-2.0)
        with torch.no_grad():
            ordered = centred.sort(-1, descending=True).values
            rank = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
            size = (1 + rank * ordered > ordered.cumsum(-1)).sum(-1, keepdim=True)  # (…, 1) keys in the support
            # a row of NaN has no support, and must not be looked up in one
            size = size.clamp(min=1)
            support = centred >= ordered.gather(-1, size - 1)
            size = support.sum(-1, keepdim=True).to(scores.dtype)
        threshold = ((centred * support).sum(-1, keepdim=True) - 1) / size
        # of relu, unlike of clamp, a score exactly on τ gets no gradient: it has no weight, so it is none of the support
        return torch.relu(centred - threshold)
