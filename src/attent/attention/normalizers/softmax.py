"""The softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from attent.attention.base import Normalizer


@dataclass(frozen=True)
class Softmax(Normalizer):
    """exp(sᵢ) / Σⱼ exp(sⱼ): all weights positive, summing to one.

    Bridle 1990, "Probabilistic Interpretation of Feedforward Classification Network Outputs"; in attention since Bahdanau
    et al. 2015, eq. 6.
    """

    aliases: ClassVar[tuple[str, ...]] = ("boltzmann",)

    def normalize(self, scores: Tensor) -> Tensor:
        """Return the softmax of each row of scores (…, Tk)."""
        return scores.softmax(-1)
