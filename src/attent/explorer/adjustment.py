"""Weights shown otherwise than a model computed them: at another temperature, or only the largest of each row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attent.errors import ArgumentError
from attent.views.scene import LayerWeights

# Bounds of a temperature.
TEMPERATURES = 0.05, 20.0


@dataclass(frozen=True)
class AdjustedWeights(LayerWeights):
    """The weights of one layer, each row adjusted; see `adjust`.

    Args:
        temperature: 1 changes nothing.
        top: how many of the largest weights of each row to keep; 0 keeps all.

    Raises:
        ArgumentError: rows do not sum to one, so that there is nothing to divide by.
    """

    temperature: float = 1.0
    top: int = 0

    def __post_init__(self) -> None:
        if not self.is_distribution:
            raise ArgumentError(
                f"the weights of {self.name} do not sum to 1: they have no temperature and no largest to keep"
            )

    def rows(self, queries: Tensor) -> Tensor:
        """Return the adjusted weights of some queries, (H, len(queries), Tk)."""
        return adjust(super().rows(queries), self.temperature, self.top)


def adjust(weights: Tensor, temperature: float, top: int) -> Tensor:
    """Raise weights to the power 1/temperature and divide each row by its sum, then keep the largest of each row.

    Of softmax(s) this makes softmax(s / temperature). What is kept is not divided again.

    Args:
        weights: (…, Tk), not negative.
        temperature: below 1 sharper, above 1 flatter.
        top: how many to keep, the others becoming 0; 0 keeps all.
    """
    if temperature != 1:
        # relative to the largest, which a small temperature would otherwise round to 0
        powers = (weights / weights.amax(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)) ** (
            1 / temperature
        )
        weights = powers / powers.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    if not 0 < top < weights.shape[-1]:
        return weights
    largest = weights.topk(top, -1)
    return torch.zeros_like(weights).scatter(-1, largest.indices, largest.values)
