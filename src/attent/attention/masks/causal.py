"""No looking ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import KeyRange, Mask, Pairs


@dataclass(frozen=True)
class Causal(Mask):
    """A query sees the keys up to its own position: j ≤ p(i).

    Vaswani et al. 2017, §3.2.3 (arXiv:1706.03762). By position, not by index: one new query against a cache of n keys stands
    at n − 1 and sees them all.
    """

    aliases: ClassVar[tuple[str, ...]] = ("autoregressive", "subsequent")

    def allowed(self, pairs: Pairs) -> Tensor:
        """(B|1, 1, Tq, Tk)."""
        query, key = pairs.broadcast_positions()
        return key <= query

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """From the first key to the query's own."""
        query, _ = pairs.broadcast_positions()
        return KeyRange(torch.zeros_like(query), query + 1, exact=True)
