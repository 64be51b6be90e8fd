"""The identity: the weights are the scores."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from attent.attention.base import Normalizer


@dataclass(frozen=True)
class Identity(Normalizer):
    """The weights are the similarities: Attention(q, D) = Σᵢ similarity(q, kᵢ) vᵢ.

    With the dot product this is linear attention with identity features, Q(KᵀV) in another order (Katharopoulos et al.
    2020, eq. 4–6, arXiv:2006.16236); (ssᵀ)s of a sequence s is `attend(s, s, s, score="dot", normalizer="identity")`.
    """

    aliases: ClassVar[tuple[str, ...]] = ("none", "linear")
    is_distribution: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = False

    def normalize(self, scores: Tensor) -> Tensor:
        """Return the scores (…, Tk)."""
        return scores
