"""A beginning that everyone sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import Mask, Pairs
from attent.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    """Every query sees the first `length` keys: j < length. `Causal() | Prefix(n)` is the prefix language model.

    Raffel et al. 2020, "Exploring the Limits of Transfer Learning", §3.2.1 (arXiv:1910.10683).

    Args:
        length: how many keys, one number for all sequences or (B,) whole numbers.
    """

    length: int | Tensor
    aliases: ClassVar[tuple[str, ...]] = ("prefix_lm",)
    splits: ClassVar[bool] = True

    def allowed(self, pairs: Pairs) -> Tensor:
        """(B|1, 1, 1, Tk)."""
        length = torch.as_tensor(self.length, device=pairs.columns.device).reshape(-1, 1)
        return (pairs.columns < length)[:, None, None, :]

    def span(self, pairs: Pairs) -> tuple[Tensor, Tensor] | None:
        """The beginning."""
        last = torch.as_tensor(self.length, device=pairs.columns.device).reshape(-1, 1, 1, 1) - 1
        return torch.zeros_like(last), last

    def alone(self, sequence: int, keys: int) -> Mask | None:
        """The sequence's own."""
        several = isinstance(self.length, Tensor) and self.length.numel() > 1
        return Prefix(int(self.length[sequence])) if several else self  # pyright: ignore[reportIndexIssue]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """One length, or one a sequence."""
        if isinstance(self.length, Tensor) and tuple(self.length.shape) not in ((), (1,), (batch,)):
            raise ShapeError(f"prefix length must be a number or (B,) = ({batch},), got {tuple(self.length.shape)}")
