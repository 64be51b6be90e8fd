"""A window of keys around the query's position."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import KeyRange, Mask, Pairs
from attent.errors import ArgumentError


@dataclass(frozen=True)
class Window(Mask):
    """A query attends to `left` keys before its position and `right` after it, inclusive: p − left ≤ j ≤ p + right.

    Luong, Pham and Manning 2015, §3.2, whose D is left = right (arXiv:1508.04025); Beltagy et al. 2020, "Longformer",
    §3.1 (arXiv:2004.05150).

    Args:
        left: number of keys before the query's position, ≥ 0; None for all of them.
        right: number of keys after it, ≥ 0; None for all of them.

    Raises:
        ArgumentError: a side is negative.
    """

    left: int | None
    right: int | None
    aliases: ClassVar[tuple[str, ...]] = ("sliding_window", "local")

    def __post_init__(self) -> None:
        for name, side in (("left", self.left), ("right", self.right)):
            if side is not None and side < 0:
                raise ArgumentError(f"window's {name} must be ≥ 0 or None, got {side}")

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return which pairs may attend, (B|1, 1, Tq, Tk)."""
        query, key = pairs.broadcast_positions()
        may = torch.ones_like(key <= query)
        if self.left is not None:
            may = may & (key >= query - self.left)
        if self.right is not None:
            may = may & (key <= query + self.right)
        return may

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """Return the range from `left` keys before the query's position to `right` keys after it."""
        query, key = pairs.broadcast_positions()
        begin = torch.zeros_like(query) if self.left is None else query - self.left
        return KeyRange(
            begin, torch.full_like(query, key.shape[0]) if self.right is None else query + self.right + 1, exact=True
        )
