"""Block-sparse attention by a table of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import KeyRange, Mask, Pairs
from attent.errors import ArgumentError, DTypeError, ShapeError
from attent.ops.eligibility import is_known_true


@dataclass(frozen=True, eq=False)
class Blocks(Mask):
    """Queries and keys in blocks of `size` tokens; a table says which block of queries attends to which block of keys.

    Child et al. 2019, "Generating Long Sequences with Sparse Transformers", §4–5 (arXiv:1904.10509); Zaheer et al.
    2020, "Big Bird" (arXiv:2007.14062).

    Args:
        table: boolean, (blocks of queries, blocks of keys), or with (B|1, H|1) before them.
        size: tokens of a block, ≥ 1.

    Raises:
        ArgumentError: the size is below one.
        DTypeError: the table is not boolean.
        ShapeError: it has neither two nor four axes.
    """

    table: Tensor
    size: int
    aliases: ClassVar[tuple[str, ...]] = ("block_sparse",)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ArgumentError(f"block size must be ≥ 1, got {self.size}")
        if str(self.table.dtype) != "torch.bool":
            raise DTypeError(f"the table of blocks must be boolean, got {self.table.dtype}")
        if self.table.dim() not in (2, 4):
            raise ShapeError(f"the table of blocks must be (q, k) or (B|1, H|1, q, k), got {tuple(self.table.shape)}")

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return which pairs may attend, (B|1, H|1, Tq, Tk)."""
        table = self.table if self.table.dim() == 4 else self.table[None, None]
        query = (pairs.query_position // self.size).clamp(0, table.shape[-2] - 1)  # (B|1, Tq)
        columns = table[..., pairs.key_index // self.size]  # (B|1, H|1, blocks, Tk)
        if len(query) == 1:
            # whole rows are copied, many times as fast as number by number
            return columns.index_select(2, query[0])
        batch = max(query.shape[0], columns.shape[0])
        index = query.expand(batch, -1)[:, None, :, None].expand(-1, columns.shape[1], -1, columns.shape[-1])
        return columns.expand(batch, -1, -1, -1).gather(2, index)

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """Return the range from the first visible block of the query's block to the last.

        Exact if no row of the table has a gap.
        """
        table = self.table if self.table.dim() == 4 else self.table[None, None]
        blocks = torch.arange(table.shape[-1], device=table.device)
        first = torch.where(table, blocks, table.shape[-1]).amin(-1)  # (B|1, H|1, blocks)
        end = torch.where(table, blocks + 1, 0).amax(-1)
        has_no_gap = is_known_true(lambda: (table.sum(-1) == (end - first).clamp(min=0)).all(), table.device)
        own = (pairs.query_position // self.size).clamp(0, table.shape[-2] - 1)[:, None]  # (B|1, 1, Tq)
        batch = max(own.shape[0], table.shape[0])
        index = own.expand(batch, table.shape[1], -1)
        bounds = ((bound * self.size).expand(batch, -1, -1).gather(2, index)[..., None] for bound in (first, end))
        return KeyRange(*bounds, exact=has_no_gap)

    def visible_keys(self, pairs: Pairs) -> Tensor | None:
        """Return the keys that are visible from the queries' blocks."""
        table = self.table if self.table.dim() == 4 else self.table[None, None]
        own = (pairs.query_position // self.size).clamp(0, table.shape[-2] - 1).unique()
        return table[:, :, own].any(0).any(0).any(0)[pairs.key_index // self.size]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Check that the table has as many blocks as the keys fill."""
        blocks = -(-keys // self.size)
        if self.table.shape[-1] != blocks:
            raise ShapeError(
                f"{keys} keys in blocks of {self.size} need {blocks} columns in the table, got {self.table.shape[-1]}"
            )
        if self.table.dim() == 4 and (self.table.shape[0] not in (1, batch) or self.table.shape[1] not in (1, heads)):
            raise ShapeError(
                f"the table of blocks must begin with (B|1, H|1) = ({batch}, {heads}), got {tuple(self.table.shape)}"
            )
