"""Causal attention: later keys are hidden."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import KeyRange, Mask, Pairs


@dataclass(frozen=True)
class Causal(Mask):
    """A query attends to the keys up to its own position: j ≤ p(i).

    Vaswani et al. 2017, §3.2.3 (arXiv:1706.03762). Positions count, not indices: one new query against a cache of n
    keys has position n − 1 and attends to all of them.
    """

    aliases: ClassVar[tuple[str, ...]] = ("autoregressive", "subsequent")

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return which pairs may attend, (B|1, 1, Tq, Tk)."""
        query, key = pairs.broadcast_positions()
        return key <= query

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """Return the range from the first key to the query's own."""
        query, _ = pairs.broadcast_positions()
        return KeyRange(torch.zeros_like(query), query + 1, exact=True)
