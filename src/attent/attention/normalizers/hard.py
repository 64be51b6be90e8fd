"""The argmax: all weight on the best key."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from attent.attention.base import Normalizer


@dataclass(frozen=True)
class Hard(Normalizer):
    """1 for the key with the highest score (the first in a tie) and 0 for all others: an exact lookup.

    The limit of softmax(s/τ) for τ → 0. Its gradient with respect to the scores is zero, so nothing before them learns;
    Xu et al. 2015 ("Show, Attend and Tell", §4.1, arXiv:1502.03044) train such a choice by sampling instead.
    """

    aliases: ClassVar[tuple[str, ...]] = ("argmax", "hardmax", "one_hot")

    def normalize(self, scores: Tensor) -> Tensor:
        """Return one-hot rows for scores (…, Tk)."""
        best = F.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)
        # keeps the graph: the gradient is zero, not missing
        return best + 0.0 * scores
