"""No looking ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import Mask, Pairs


@dataclass(frozen=True)
class Causal(Mask):
    """A query sees the keys up to its own position: j ≤ p(i).

    Vaswani et al. 2017, §3.2.3 (arXiv:1706.03762). By position, not by index: one new query against a cache of n keys stands
    at n − 1 and sees them all.
    """

    aliases: ClassVar[tuple[str, ...]] = ("autoregressive", "subsequent")
    splits: ClassVar[bool] = True

    def allowed(self, pairs: Pairs) -> Tensor:
        """(B|1, 1, Tq, Tk)."""
        query, key = pairs.between()
        return key <= query

    def span(self, pairs: Pairs) -> tuple[Tensor, Tensor] | None:
        """From the first key to the query's own."""
        query, _ = pairs.between()
        return torch.zeros_like(query), query

    def alone(self, sequence: int, keys: int) -> Mask | None:
        """The same for each."""
        return self
