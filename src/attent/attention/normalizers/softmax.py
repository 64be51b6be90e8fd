"""The softmax."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import Normalizer
from attent.ops.eligibility import is_known_true


@dataclass(frozen=True)
class Softmax(Normalizer):
    """exp(sᵢ) / Σⱼ exp(sⱼ): all weights positive, summing to one.

    Bridle 1990, "Probabilistic Interpretation of Feedforward Classification Network Outputs"; in attention since
    Bahdanau et al. 2015, eq. 6.
    """

    aliases: ClassVar[tuple[str, ...]] = ("boltzmann",)

    def normalize(self, scores: Tensor) -> Tensor:
        """Return the softmax of each row of scores (…, Tk)."""
        return scores.softmax(-1)

    def of_masked(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return the weights of scores in which −∞ hides a pair; it gets zero unless its whole row is hidden."""
        if scores.shape[-1] and is_known_true(lambda: (scores.detach().amax(-1) > -torch.inf).all(), scores.device):
            return self.normalize(scores)
        return super().of_masked(scores, allowed)
