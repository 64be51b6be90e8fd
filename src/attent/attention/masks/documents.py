"""Several documents packed into one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import KeyRange, Mask, Pairs
from attent.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    """A query sees the keys of its own document.

    Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination", §3.2 (arXiv:2107.02027).

    Args:
        keys: (B, Tk) the number of the document that each key belongs to; a negative number is padding, which nobody sees.
        queries: (B, Tq) the same for the queries; if not given, the query at position p belongs where key p belongs.
    """

    keys: Tensor
    queries: Tensor | None = None
    aliases: ClassVar[tuple[str, ...]] = ("segments", "packed")

    def allowed(self, pairs: Pairs) -> Tensor:
        """(B, 1, Tq, Tk)."""
        mine = self._mine(pairs)
        theirs = self.keys[:, pairs.key_index]
        return ((mine[:, :, None] == theirs[:, None, :]) & (theirs >= 0)[:, None, :])[:, None]

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """From the first key of the query's document to the last."""
        mine, places = self._mine(pairs), torch.arange(self.keys.shape[1], device=self.keys.device)
        if not mine.numel() or not self.keys.numel():
            return None
        batch, documents = max(mine.shape[0], self.keys.shape[0]), int(torch.maximum(mine.amax(), self.keys.amax())) + 2
        # a document of its own for padding, behind all others
        theirs, mine = (torch.where(of < 0, documents - 1, of).expand(batch, -1) for of in (self.keys, mine))
        here = places.expand(batch, -1)
        first = here.new_full((batch, documents), self.keys.shape[1]).scatter_reduce(1, theirs, here, "amin")
        last = here.new_full((batch, documents), -1).scatter_reduce(1, theirs, here, "amax")
        # which nobody sees
        first[:, -1], last[:, -1] = self.keys.shape[1], -1
        begin, end = (bound.gather(1, mine)[:, None, :, None] for bound in (first, last + 1))
        return KeyRange(begin, end, exact=False)

    def _mine(self, pairs: Pairs) -> Tensor:
        """The document of each query, (B|1, Tq)."""
        if self.queries is not None:
            return self.queries[:, pairs.query_index]
        batch = max(self.keys.shape[0], pairs.query_position.shape[0])
        at = pairs.query_position.expand(batch, -1).clamp(0, self.keys.shape[1] - 1)
        return self.keys.expand(batch, -1).gather(1, at)

    def for_sequence(self, sequence: int) -> Mask | None:
        """Return the mask of one sequence's documents, which costs 1/B of `allowed`."""
        keys, queries = (
            table if table is None or len(table) == 1 else table[sequence : sequence + 1] for table in (self.keys, self.queries)
        )
        return Documents(keys, queries)  # pyright: ignore[reportArgumentType]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """A document for each key, and for each query where they are given."""
        for name, table, length in (("keys", self.keys, keys), ("queries", self.queries, queries)):
            if table is not None and (table.dim() != 2 or table.shape[0] not in (1, batch) or table.shape[1] != length):
                raise ShapeError(f"documents of {name} must be (B|1, T) = ({batch}, {length}), got {tuple(table.shape)}")
