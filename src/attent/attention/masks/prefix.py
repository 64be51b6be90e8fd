"""A prefix of keys that is visible to every query."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import KeyRange, Mask, Pairs
from attent.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    """Every query attends to the first `length` keys: j < length. `Causal() | Prefix(n)` is the prefix language model.

    Raffel et al. 2020, "Exploring the Limits of Transfer Learning", §3.2.1 (arXiv:1910.10683).

    Args:
        length: the number of keys, one number for all sequences or (B,) whole numbers.
    """

    length: int | Tensor
    aliases: ClassVar[tuple[str, ...]] = ("prefix_lm",)

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return which pairs may attend, (B|1, 1, 1, Tk)."""
        length = torch.as_tensor(self.length, device=pairs.key_index.device).reshape(-1, 1)
        return (pairs.key_index < length)[:, None, None, :]

    def key_range(self, pairs: Pairs) -> KeyRange | None:
        """Return the range of the prefix."""
        end = torch.as_tensor(self.length, device=pairs.key_index.device).reshape(-1, 1, 1, 1)
        return KeyRange(torch.zeros_like(end), end, exact=True)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Check that the length is one number or one per sequence."""
        if isinstance(self.length, Tensor) and tuple(self.length.shape) not in ((), (1,), (batch,)):
            raise ShapeError(f"prefix length must be a number or (B,) = ({batch},), got {tuple(self.length.shape)}")
