"""Which keys equal which queries, as a mask."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attent.attention.base import Mask, Pairs


@dataclass(frozen=True, eq=False)
class Equal(Mask):
    """A query sees the keys that equal it: key == query.

    Args:
        query: (Tq,) a number for each distinct thing; a negative one equals nothing.
        key: (Tk,) likewise.
    """

    query: Tensor
    key: Tensor

    @classmethod
    def of(cls, queries: Sequence[Hashable], keys: Sequence[Hashable]) -> Equal:
        """The mask of things that compare by equality; what does not equal itself, NaN, equals nothing."""
        numbers: dict[Hashable, int] = {}
        key = [numbers.setdefault(item, len(numbers)) if item == item else -2 for item in keys]
        query = [numbers.get(item, -1) if item == item else -1 for item in queries]
        return cls(torch.tensor(query, dtype=torch.int64), torch.tensor(key, dtype=torch.int64))

    def allowed(self, pairs: Pairs) -> Tensor:
        """(1, 1, Tq, Tk) of this tile."""
        return (self.query[pairs.rows][:, None] == self.key[pairs.columns])[None, None]

    def reach(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """From the first of the equal keys to the last."""
        first, last = self._ends
        wanted = self.query[pairs.rows]
        # the last place is that of what equals nothing
        ends = (first[wanted], last[wanted])
        return ends[0][None, None, :, None], ends[1][None, None, :, None]

    def seen(self, pairs: Pairs) -> Tensor:
        """The keys that equal any of these queries."""
        return torch.isin(self.key, self.query[pairs.rows])

    @property
    def found(self) -> Tensor:
        """Whether any key equals each query, (Tq,)."""
        return torch.isin(self.query, self.key)

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor]:
        """Of each distinct thing the first and the last key that is it, and of nothing a last before the first."""
        count, places = int(max(self.key.max().item() if len(self.key) else -1, -1)) + 1, torch.arange(len(self.key))
        real = self.key >= 0
        first = torch.full((count + 1,), len(self.key)).scatter_reduce(0, self.key[real], places[real], "amin")
        last = torch.full((count + 1,), -1).scatter_reduce(0, self.key[real], places[real], "amax")
        return first, last

    def __repr__(self) -> str:
        return f"Equal({len(self.query)} queries, {len(self.key)} keys)"
