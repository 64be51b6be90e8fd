"""Several documents packed into one row."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import KeyRange, Mask, Pairs
from attent.errors import ShapeError
from attent.ops.eligibility import is_known_true


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    """A query attends to the keys of its own document.

    Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination", §3.2 (arXiv:2107.02027).

    Args:
        keys: the document number of each key, (B, Tk), or (Tk,), the same in all sequences; negative for padding, which
            no query attends to.
        queries: the document number of each query, (B, Tq) or (Tq,); by default a query at position p is in the
            document of key p.
    """

    keys: Tensor
    queries: Tensor | None = None
    aliases: ClassVar[tuple[str, ...]] = ("segments", "packed")

    def __post_init__(self) -> None:
        for name, table in (("keys", self.keys), ("queries", self.queries)):
            if table is not None and table.dim() == 1:
                object.__setattr__(self, name, table[None])

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return which pairs may attend, (B, 1, Tq, Tk)."""
        query_documents = self._query_documents(pairs)
        key_documents = self.keys[:, pairs.key_index]
        return ((query_documents[:, :, None] == key_documents[:, None, :]) & (key_documents >= 0)[:, None, :])[:, None]

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """Return the range from the first key of the query's document to the last.

        Exact if no document is interrupted by another.
        """
        query_documents = self._query_documents(pairs)
        if not query_documents.numel() or not self.keys.numel() or torch.compiler.is_compiling():
            # a graph cannot depend on the number of documents
            return None
        batch = max(query_documents.shape[0], self.keys.shape[0])
        documents = int(torch.maximum(query_documents.amax(), self.keys.amax())) + 2
        # padding is a document by itself, after all others
        key_documents, query_documents = (
            torch.where(of < 0, documents - 1, of).expand(batch, -1) for of in (self.keys, query_documents)
        )
        positions = torch.arange(self.keys.shape[1], device=self.keys.device).expand(batch, -1)
        first = positions.new_full((batch, documents), self.keys.shape[1]).scatter_reduce(
            1, key_documents, positions, "amin"
        )
        last = positions.new_full((batch, documents), -1).scatter_reduce(1, key_documents, positions, "amax")
        # no query sees padding
        first[:, -1], last[:, -1] = self.keys.shape[1], -1
        begin, end = (bound.gather(1, query_documents)[:, None, :, None] for bound in (first, last + 1))
        counts = torch.zeros_like(first).scatter_add_(1, key_documents, torch.ones_like(positions))[:, :-1]
        spans = (last - first + 1)[:, :-1]
        return KeyRange(
            begin, end, exact=is_known_true(lambda: ((spans == counts) | (counts == 0)).all(), counts.device)
        )

    def _query_documents(self, pairs: Pairs) -> Tensor:
        """Return the document of each query, (B|1, Tq)."""
        if self.queries is not None:
            return self.queries[:, pairs.query_index]
        batch = max(self.keys.shape[0], pairs.query_position.shape[0])
        at = pairs.query_position.expand(batch, -1).clamp(0, self.keys.shape[1] - 1)
        return self.keys.expand(batch, -1).gather(1, at)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Check that each key has a document, and each query if `queries` is given."""
        for name, table, length in (("keys", self.keys, keys), ("queries", self.queries, queries)):
            if table is not None and (table.dim() != 2 or table.shape[0] not in (1, batch) or table.shape[1] != length):
                raise ShapeError(
                    f"documents of {name} must be (B|1, T) = ({batch}, {length}), got {tuple(table.shape)}"
                )
