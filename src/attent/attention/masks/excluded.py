"""For each query the keys that it does not see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from attent.attention.base import Mask, Pairs
from attent.attention.masks.selected import Selected, check_indices, check_shape


@dataclass(frozen=True, eq=False)
class Excluded(Mask):
    """Query i sees every key but those named in indices[…, i, :]; with its own index alone, it is answered by all others.

    That is leave-one-out: Stone 1974, "Cross-Validatory Choice and Assessment of Statistical Predictions".

    Args:
        indices: (B|1, H|1, Tq, n) or (Tq, n) whole numbers, the keys hidden from each query; a negative one hides nothing.

    Raises:
        DTypeError, ShapeError: indices that are no whole numbers or of no such shape.
    """

    indices: Tensor
    aliases: ClassVar[tuple[str, ...]] = ("leave_one_out",)

    def __post_init__(self) -> None:
        check_indices(self.indices, "excluded")

    def allowed(self, pairs: Pairs) -> Tensor:
        """(B|1, H|1, Tq, Tk)."""
        return ~Selected(self.indices).allowed(pairs)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """A choice for each query."""
        check_shape(self.indices, "excluded", batch, heads, queries)
