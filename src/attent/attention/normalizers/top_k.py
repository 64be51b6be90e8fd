"""The softmax over the k keys with the largest scores."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import Normalizer
from attent.errors import refuse


@dataclass(frozen=True)
class TopK(Normalizer):
    """The softmax over the k largest scores; the other weights are exactly zero.

    Gupta et al. 2021, "Memory-efficient Transformers via Top-k Attention" (arXiv:2106.06899). If scores tie at the
    threshold, some are dropped so that k remain.

    Args:
        k: the number of keys that each query gives weight, ≥ 1; all keys if there are fewer.

    Raises:
        ArgumentError: k is less than one.
    """

    k: int
    aliases: ClassVar[tuple[str, ...]] = ("topk",)

    def __post_init__(self) -> None:
        refuse((self.k < 1, f"k must be ≥ 1, got {self.k}"))

    def normalize(self, scores: Tensor) -> Tensor:
        """Return the softmax over the k largest of each row of scores (…, Tk)."""
        if self.k >= scores.shape[-1]:
            return scores.softmax(-1)
        best = scores.topk(self.k, dim=-1)
        return torch.zeros_like(scores).scatter(-1, best.indices, best.values.softmax(-1))
