"""ALiBi: a penalty that grows with distance."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import Pairs, Position
from attent.errors import ShapeError


class Alibi(Position):
    """A bias −m_h · |p(i) − j| with a fixed slope m_h for each head.

    The slopes are 2^{−8/H}, 2^{−16/H}, …; if H is not a power of two, those of the next lower power, then every second
    slope of the next higher power. Press, Smith and Lewis 2022, "Train Short, Test Long", §3 (arXiv:2108.12409), who
    mask the future; here the distance counts the same on both sides.

    Args:
        heads: H; any number if not given.
    """

    aliases: ClassVar[tuple[str, ...]] = ("linear_bias",)
    biases: ClassVar[bool] = True

    def __init__(self, heads: int | None = None) -> None:
        super().__init__()
        self.heads = heads

    def with_heads(self, heads: int) -> Alibi:
        """Return ALiBi of this number of heads, on which its slopes depend."""
        return self if self.heads is not None else Alibi(heads)

    @staticmethod
    def slopes(heads: int) -> list[float]:
        """Return the slope of each head, in nats per token."""
        power = 2 ** int(math.log2(max(heads, 1)))
        own = [2.0 ** (-8.0 * (head + 1) / power) for head in range(min(power, heads))]
        return own + [2.0 ** (-4.0 * (2 * head + 1) / power) for head in range(heads - power)]

    def bias(self, pairs: Pairs) -> Tensor:
        """Return the bias, (B|1, H, Tq, Tk)."""
        query, key = pairs.broadcast_positions()
        return -self._slopes(pairs.heads, key.device).reshape(1, -1, 1, 1) * (query - key).abs()

    def bias_by_offset(self, offsets: Tensor) -> Tensor | None:
        """Return the bias of pairs with these offsets, (H, n); None if the number of heads is not known yet."""
        return None if self.heads is None else -self._slopes(self.heads, offsets.device)[:, None] * offsets.abs()

    def check(self, heads: int, width: int) -> None:
        """Raise ShapeError if it was made for a different number of heads."""
        if self.heads not in (None, heads):
            raise ShapeError(f"alibi was made for {self.heads} heads, got {heads}")

    def _slopes(self, heads: int, device: torch.device) -> Tensor:
        # with up to 8 heads every slope is a power of 2, exact in float32; Apple's GPUs have no float64
        dtype = torch.float32 if heads <= 8 or device.type == "mps" else torch.float64
        return torch.tensor(self.slopes(heads), dtype=dtype, device=device)
