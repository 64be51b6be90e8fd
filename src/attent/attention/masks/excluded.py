"""A list of hidden keys for each query."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from attent.attention.base import Mask, Pairs
from attent.attention.masks.selected import Selected, check_indices, check_shape


@dataclass(frozen=True, eq=False)
class Excluded(Mask):
    """Query i attends to all keys except those in indices[…, i, :].

    With indices[i] = [i] this is leave-one-out: Stone 1974, "Cross-Validatory Choice and Assessment of Statistical
    Predictions".

    Args:
        indices: the keys hidden from each query, whole numbers (B|1, H|1, Tq, n) or (Tq, n); negative ones are ignored.

    Raises:
        DTypeError: the indices are not whole numbers.
        ShapeError: they have neither two nor four axes.
    """

    indices: Tensor
    aliases: ClassVar[tuple[str, ...]] = ("leave_one_out",)

    def __post_init__(self) -> None:
        check_indices(self.indices, "excluded")

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return which pairs may attend, (B|1, H|1, Tq, Tk)."""
        return ~Selected(self.indices).allowed(pairs)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Check that each query has a list of keys."""
        check_shape(self.indices, "excluded", batch, heads, queries)
