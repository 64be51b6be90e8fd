"""For each query its chosen keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import KeyRange, Mask, Pairs
from attent.errors import DTypeError, ShapeError


@dataclass(frozen=True, eq=False)
class Selected(Mask):
    """Sparse attention over selected positions: query i sees the keys named in indices[…, i, :].

    Yuan et al. 2025, "Native Sparse Attention", §3.3.2 (arXiv:2502.11089) choose them by score.

    Args:
        indices: (B|1, H|1, Tq, n) or (Tq, n) whole numbers, the keys each query sees; a negative one chooses nothing.

    Raises:
        DTypeError, ShapeError: indices that are no whole numbers or of no such shape.
    """

    indices: Tensor
    aliases: ClassVar[tuple[str, ...]] = ("sparse",)

    def __post_init__(self) -> None:
        check_indices(self.indices, "selected")

    def allowed(self, pairs: Pairs) -> Tensor:
        """(B|1, H|1, Tq, Tk)."""
        indices = (self.indices if self.indices.dim() == 4 else self.indices[None, None])[:, :, pairs.query_index]
        length = pairs.key_index.shape[0]
        if not length:
            return torch.zeros((*indices.shape[:-1], 0), dtype=torch.bool, device=indices.device)
        # a choice is marked by where it falls among the columns; all others fall on a spare one
        place = torch.searchsorted(pairs.key_index, indices.to(pairs.key_index.dtype)).clamp(max=length - 1)
        place = place.masked_fill(pairs.key_index[place] != indices, length)
        marks = torch.zeros((*place.shape[:-1], length + 1), dtype=torch.bool, device=place.device)
        return marks.scatter(-1, place, True)[..., :length]

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """From the first of the keys named to the last."""
        indices = (self.indices if self.indices.dim() == 4 else self.indices[None, None])[:, :, pairs.query_index].long()
        if not indices.shape[-1]:
            return KeyRange(indices.new_zeros(1, 1, 1, 1), indices.new_zeros(1, 1, 1, 1), exact=False)
        first = torch.where(indices < 0, pairs.key_index.shape[0], indices).amin(-1, keepdim=True)
        return KeyRange(first, indices.amax(-1, keepdim=True) + 1, exact=False)

    def visible_keys(self, pairs: Pairs) -> Tensor | None:
        """The keys named."""
        named = (self.indices if self.indices.dim() == 4 else self.indices[None, None])[:, :, pairs.query_index].long()
        return torch.zeros_like(pairs.key_index, dtype=torch.bool).index_fill_(0, named[named >= 0], True)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """A choice for each query."""
        check_shape(self.indices, "selected", batch, heads, queries)


def check_indices(indices: Tensor, what: str) -> None:
    """Raise where keys are not named by whole numbers along two or four axes."""
    if indices.is_floating_point() or indices.dtype == torch.bool:
        raise DTypeError(f"{what} keys must be whole numbers, got {indices.dtype}")
    if indices.dim() not in (2, 4):
        raise ShapeError(f"{what} keys must be (Tq, n) or (B|1, H|1, Tq, n), got {tuple(indices.shape)}")


def check_shape(indices: Tensor, what: str, batch: int, heads: int, queries: int) -> None:
    """Raise where there is not a choice for each query."""
    shape = tuple(indices.shape)
    if shape[-2] != queries or (len(shape) == 4 and (shape[0] not in (1, batch) or shape[1] not in (1, heads))):
        raise ShapeError(f"{what} keys must be (B|1, H|1, Tq, n) = ({batch}, {heads}, {queries}, n), got {shape}")
