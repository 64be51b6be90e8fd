"""ALiBi: a penalty that grows with distance."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import Pairs, Position


class Alibi(Position):
    """A bias −m_h · |p(i) − j| with a fixed slope m_h for each head.

    The slopes are 2^{−8/H}, 2^{−16/H}, …; for H not a power of two those of the next lower power, then every second slope of
    the next higher. Press, Smith and Lewis 2022, "Train Short, Test Long", §3 (arXiv:2108.12409), who mask the future; here
    the distance counts the same on both sides.
    """

    aliases: ClassVar[tuple[str, ...]] = ("linear_bias",)
    biases: ClassVar[bool] = True

    @staticmethod
    def slopes(heads: int) -> list[float]:
        """Return the slope of each head, in nats per token."""
        power = 2 ** int(math.log2(max(heads, 1)))
        own = [2.0 ** (-8.0 * (head + 1) / power) for head in range(min(power, heads))]
        return own + [2.0 ** (-4.0 * (2 * head + 1) / power) for head in range(heads - power)]

    def bias(self, pairs: Pairs) -> Tensor:
        """Return the bias, (B|1, H, Tq, Tk)."""
        query, key = pairs.broadcast_positions()
        # with up to 8 heads every slope is a power of 2, exact in float32; Apple's GPUs have no float64
        dtype = torch.float32 if pairs.heads <= 8 or key.device.type == "mps" else torch.float64
        slopes = torch.tensor(self.slopes(pairs.heads), dtype=dtype, device=key.device).reshape(1, -1, 1, 1)
        return -slopes * (query - key).abs()
