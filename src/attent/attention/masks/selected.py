"""A list of visible keys for each query."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import KeyRange, Mask, Pairs
from attent.errors import DTypeError, ShapeError


@dataclass(frozen=True, eq=False)
class Selected(Mask):
    """Sparse attention over selected positions: query i attends to the keys in indices[…, i, :].

    Yuan et al. 2025, "Native Sparse Attention", §3.3.2 (arXiv:2502.11089) choose them by score.

    Args:
        indices: the keys of each query, whole numbers (B|1, H|1, Tq, n) or (Tq, n); negative ones are ignored.

    Raises:
        DTypeError: the indices are not whole numbers.
        ShapeError: they have neither two nor four axes.
    """

    indices: Tensor
    aliases: ClassVar[tuple[str, ...]] = ("sparse",)

    def __post_init__(self) -> None:
        check_indices(self.indices, "selected")

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return which pairs may attend, (B|1, H|1, Tq, Tk)."""
        indices = (self.indices if self.indices.dim() == 4 else self.indices[None, None])[:, :, pairs.query_index]
        length = pairs.key_index.shape[0]
        if not length:
            return torch.zeros((*indices.shape[:-1], 0), dtype=torch.bool, device=indices.device)
        # mark the column of each selected key; keys outside the tile mark a spare column
        columns = torch.searchsorted(pairs.key_index, indices.to(pairs.key_index.dtype)).clamp(max=length - 1)
        columns = columns.masked_fill(pairs.key_index[columns] != indices, length)
        marks = torch.zeros((*columns.shape[:-1], length + 1), dtype=torch.bool, device=columns.device)
        return marks.scatter(-1, columns, True)[..., :length]

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """Return the range from the first selected key to the last."""
        indices = (self.indices if self.indices.dim() == 4 else self.indices[None, None])[
            :, :, pairs.query_index
        ].long()
        if not indices.shape[-1]:
            return KeyRange(indices.new_zeros(1, 1, 1, 1), indices.new_zeros(1, 1, 1, 1), exact=False)
        first = torch.where(indices < 0, pairs.key_index.shape[0], indices).amin(-1, keepdim=True)
        return KeyRange(first, indices.amax(-1, keepdim=True) + 1, exact=False)

    def visible_keys(self, pairs: Pairs) -> Tensor | None:
        """Return the keys that any query selects."""
        named = (self.indices if self.indices.dim() == 4 else self.indices[None, None])[:, :, pairs.query_index].long()
        return torch.zeros_like(pairs.key_index, dtype=torch.bool).index_fill_(0, named[named >= 0], True)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Check that each query has a list of keys."""
        check_shape(self.indices, "selected", batch, heads, queries)


def check_indices(indices: Tensor, kind: str) -> None:
    """Check that indices of keys are whole numbers along two or four axes."""
    if indices.is_floating_point() or indices.dtype == torch.bool:
        raise DTypeError(f"{kind} keys must be whole numbers, got {indices.dtype}")
    if indices.dim() not in (2, 4):
        raise ShapeError(f"{kind} keys must be (Tq, n) or (B|1, H|1, Tq, n), got {tuple(indices.shape)}")


def check_shape(indices: Tensor, kind: str, batch: int, heads: int, queries: int) -> None:
    """Check that indices of keys have a row for each query."""
    shape = tuple(indices.shape)
    if shape[-2] != queries or (len(shape) == 4 and (shape[0] not in (1, batch) or shape[1] not in (1, heads))):
        raise ShapeError(f"{kind} keys must be (B|1, H|1, Tq, n) = ({batch}, {heads}, {queries}, n), got {shape}")
