"""A window of keys around a center that each query chooses."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from attent.attention.base import KeyRange, Mask, Pairs
from attent.errors import ArgumentError, ShapeError


@dataclass(frozen=True, eq=False)
class Around(Mask):
    """A query attends to the keys within a distance of its own center, both ends included: pᵢ − D ≤ j ≤ pᵢ + D.

    Luong, Pham and Manning 2015, §3.2, the window of local attention (arXiv:1508.04025). The window may reach beyond
    the sequence. `Window` is the same around the position of the query.

    Args:
        centers: p, the key position that each query attends to, in tokens from 0, whole or not, (B|1, Tq). A mask
            passes no gradient to them.
        distance: D, in tokens, ≥ 0.

    Raises:
        ShapeError: `centers` does not have two axes.
        ArgumentError: the distance is negative.
    """

    centers: Tensor
    distance: int
    aliases: ClassVar[tuple[str, ...]] = ("local_m",)

    def __post_init__(self) -> None:
        if self.centers.dim() != 2:
            raise ShapeError(f"centers must be (B|1, Tq), got {tuple(self.centers.shape)}")
        if self.distance < 0:
            raise ArgumentError(f"distance must be ≥ 0, got {self.distance}")

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return which pairs may attend, (B|1, 1, Tq, Tk)."""
        first, last = self._first_and_last_key(pairs)
        return (pairs.key_index >= first) & (pairs.key_index <= last)

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """Return the range from the first key within the distance to the last."""
        first, last = self._first_and_last_key(pairs)
        return KeyRange(first, last + 1, exact=True)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Check that each query has a center."""
        if self.centers.shape[0] not in (1, batch) or self.centers.shape[1] != queries:
            raise ShapeError(f"centers must be (B|1, Tq) = ({batch}, {queries}), got {tuple(self.centers.shape)}")

    def _first_and_last_key(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Return the first and the last key, whole numbers (B|1, 1, Tq, 1)."""
        centers = self.centers.detach()[:, None, pairs.query_index, None]
        if not centers.is_floating_point():
            return centers - self.distance, centers + self.distance
        return (centers - self.distance).ceil().long(), (centers + self.distance).floor().long()
