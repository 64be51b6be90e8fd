"""Queries and keys turned by where they stand."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import Position
from attent.errors import ShapeError


class Rotary(Position):
    """Each pair of features (x_{2i}, x_{2i+1}) turned by the angle p · base^{−2i/D}; qᵀk then depends on distance alone.

    Su et al. 2021, "RoFormer", §3.2.2 eq. 14–16 and 34 (arXiv:2104.09864).

    Args:
        base: the ratio of the longest to the shortest wave.
        halves: pair x_i with x_{i + D/2}, as GPT-NeoX and Llama do, instead of neighbours.
    """

    aliases: ClassVar[tuple[str, ...]] = ("rope", "roformer")
    turns: ClassVar[bool] = True

    def __init__(self, base: float = 10000.0, halves: bool = False) -> None:
        super().__init__()
        self.base, self.halves = base, halves

    def turn(self, features: Tensor, positions: Tensor) -> Tensor:
        """Turn queries or keys (B, H, T, D), D even, that stand at positions (B|1, T)."""
        width = features.shape[-1]
        exact = features if features.dtype == torch.float64 else features.float()
        exponent = torch.arange(0, width, 2, device=features.device, dtype=exact.dtype) / width
        angle = positions[:, None, :, None].to(exact.dtype) * torch.exp(-math.log(self.base) * exponent)  # (B|1, 1, T, D/2)
        if not self.halves and features.requires_grad and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # as complex numbers, in a third of the time; without gradients the plain form, whose bits depend on no neighbour
            if exact.stride(-1) != 1 or any(step % 2 for step in (exact.storage_offset(), *exact.stride()[:-1])):
                # a pair of features is a complex number only where both lie side by side, from an even place on
                exact = exact.clone(memory_format=torch.contiguous_format)
            pairs = torch.view_as_complex(exact.unflatten(-1, (width // 2, 2))) * torch.polar(torch.ones_like(angle), angle)
            return torch.view_as_real(pairs).flatten(-2).to(features.dtype)
        sine, cosine = angle.sin(), angle.cos()
        if self.halves:
            one, other = exact.chunk(2, -1)
            turned = torch.cat((one * cosine - other * sine, one * sine + other * cosine), -1)
        else:
            one, other = exact[..., 0::2], exact[..., 1::2]
            turned = torch.stack((one * cosine - other * sine, one * sine + other * cosine), -1).flatten(-2)
        return turned.to(features.dtype)

    def check(self, heads: int, width: int) -> None:
        """The width must be even."""
        if width % 2:
            raise ShapeError(f"rotary turns pairs of features, so the width must be even, got {width}")

    def extra_repr(self) -> str:
        """The base."""
        return f"base={self.base}, halves={self.halves}"
