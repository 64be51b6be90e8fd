"""Rotary position embedding: queries and keys rotated by their positions."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import Position
from attent.errors import ShapeError


class Rotary(Position):
    """Each pair of features (x_{2i}, x_{2i+1}) rotated by p · base^{−2i/D}; qᵀk then depends on distance alone.

    Su et al. 2021, "RoFormer", §3.2.2 eq. 14–16 and 34 (arXiv:2104.09864).

    Args:
        base: the ratio of the longest to the shortest wavelength.
        interleaved: pairs adjacent features, as the paper does; False pairs x_i with x_{i + D/2}, as GPT-NeoX and Llama
            do.
    """

    aliases: ClassVar[tuple[str, ...]] = ("rope", "roformer")
    rotates: ClassVar[bool] = True

    def __init__(self, base: float = 10000.0, *, interleaved: bool = True) -> None:
        super().__init__()
        self.base, self.interleaved = base, interleaved

    def rotate(self, features: Tensor, positions: Tensor) -> Tensor:
        """Rotate queries or keys (B, H, T, D), D even, at positions (B|1, T)."""
        width = features.shape[-1]
        exact = features if features.dtype == torch.float64 else features.float()
        exponent = torch.arange(0, width, 2, device=features.device, dtype=exact.dtype) / width
        angle = positions[:, None, :, None].to(exact.dtype) * torch.exp(
            -math.log(self.base) * exponent
        )  # (B|1, 1, T, D/2)
        if (
            self.interleaved
            and features.requires_grad
            and torch.is_grad_enabled()
            and not torch.compiler.is_compiling()
        ):
            # as complex numbers, in a third of the time; without gradients the plain form, whose bits depend on no
            # neighbor
            if exact.stride(-1) != 1 or any(step % 2 for step in (exact.storage_offset(), *exact.stride()[:-1])):
                # only adjacent features, from an even offset on, are complex numbers
                exact = exact.clone(memory_format=torch.contiguous_format)
            pairs = torch.view_as_complex(exact.unflatten(-1, (width // 2, 2))) * torch.polar(
                torch.ones_like(angle), angle
            )
            return torch.view_as_real(pairs).flatten(-2).to(features.dtype)
        sine, cosine = angle.sin(), angle.cos()
        x, y = (exact[..., 0::2], exact[..., 1::2]) if self.interleaved else exact.chunk(2, -1)
        rotated = x * cosine - y * sine, x * sine + y * cosine
        return (torch.stack(rotated, -1).flatten(-2) if self.interleaved else torch.cat(rotated, -1)).to(features.dtype)

    def check(self, heads: int, width: int) -> None:
        """Raise ShapeError unless the width is even."""
        if width % 2:
            raise ShapeError(f"rotary rotates pairs of features, so the width must be even, got {width}")

    def extra_repr(self) -> str:
        """Return the base and the pairing."""
        return f"base={self.base}, interleaved={self.interleaved}"
