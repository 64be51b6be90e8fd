"""A mask given as a boolean tensor."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from attent.attention.base import Mask, Pairs
from attent.errors import DTypeError, ShapeError


@dataclass(frozen=True, eq=False)
class Table(Mask):
    """A boolean tensor as a mask: True means "may attend".

    Args:
        table: (Tq, Tk) or (B|1, H|1, Tq|1, Tk|1), boolean.

    Raises:
        DTypeError: the tensor is not boolean.
        ShapeError: it has neither two nor four axes.
    """

    table: Tensor
    aliases: ClassVar[tuple[str, ...]] = ("dense",)

    def __post_init__(self) -> None:
        if str(self.table.dtype) != "torch.bool":
            raise DTypeError(
                f"mask must be boolean, True where a query may attend, got {self.table.dtype}; a float term is a bias"
            )
        if self.table.dim() not in (2, 4):
            raise ShapeError(f"mask must be (Tq, Tk) or (B|1, H|1, Tq, Tk), got {tuple(self.table.shape)}")

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return the rows and columns of this tile."""
        table = self.table if self.table.dim() == 4 else self.table[None, None]
        table = table if table.shape[2] == 1 else table[:, :, pairs.query_index]
        return table if table.shape[3] == 1 else table[..., pairs.key_index]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Check that each axis is as long as that of the scores, or one."""
        shape = tuple(self.table.shape)
        full = (batch, heads, queries, keys)[-len(shape) :]
        if any(have != 1 and have != need for have, need in zip(shape, full, strict=True)):
            expected = f"(B|1, H|1, Tq, Tk) = {full}" if len(shape) == 4 else f"(Tq, Tk) = {full}"
            raise ShapeError(f"mask must be {expected}, got {shape}")

    def __repr__(self) -> str:
        return f"Table({tuple(self.table.shape)})"
