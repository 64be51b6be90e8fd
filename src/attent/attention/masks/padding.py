"""Padding at the end of each sequence."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import KeyRange, Mask, Pairs
from attent.errors import DTypeError, ShapeError


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """Sequence b has lengths[b] keys, and those after them are hidden as padding: j < lengths[b].

    Args:
        lengths: (B,) whole numbers of keys, each from 0 to Tk.

    Raises:
        ShapeError: lengths is not one-dimensional.
        DTypeError: lengths are not whole numbers.
    """

    lengths: Tensor
    aliases: ClassVar[tuple[str, ...]] = ("lengths", "key_padding")

    def __post_init__(self) -> None:
        if self.lengths.dim() != 1:
            raise ShapeError(f"lengths must be (B,), got {tuple(self.lengths.shape)}")
        if self.lengths.is_floating_point() or self.lengths.is_complex() or str(self.lengths.dtype) == "torch.bool":
            raise DTypeError(f"lengths must be whole numbers, got {self.lengths.dtype}")

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return which pairs may attend, (B, 1, 1, Tk)."""
        return (pairs.key_index < self.lengths[:, None])[:, None, None, :]

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """Return the range from the first key to the sequence's last."""
        end = self.lengths[:, None, None, None]
        return KeyRange(torch.zeros_like(end), end, exact=True)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Check that each sequence has a length."""
        if self.lengths.shape[0] not in (1, batch):
            raise ShapeError(f"lengths must be (B,) = ({batch},), got {tuple(self.lengths.shape)}")
