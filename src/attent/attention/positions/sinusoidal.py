"""Sinusoidal position encoding, added to the embeddings."""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from attent.errors import refuse


def waves(positions: Tensor, width: int, base: float = 10000.0) -> Tensor:
    """Return the rows PE(p, 2i) = sin(p / base^{2i/E}), PE(p, 2i + 1) = cos(p / base^{2i/E}).

    (…, E) for positions (…).
    """
    exponent = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
    angle = positions[..., None].float() * torch.exp(-math.log(base) * exponent)  # (…, ⌈E/2⌉)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)[..., :width]


class Sinusoidal(nn.Module):
    """Positions as vectors of sines and cosines: x_p + PE(p).

    PE(p, 2i) = sin(p / 10000^{2i/E}), PE(p, 2i + 1) = cos(p / 10000^{2i/E}). Vaswani et al. 2017, §3.5
    (arXiv:1706.03762).

    Args:
        width: E, the model's width.
        base: the ratio of the longest to the shortest wavelength.

    Raises:
        ArgumentError: the width is less than one.
    """

    aliases: ClassVar[tuple[str, ...]] = ("sine",)
    # added to embeddings, before any attention
    added: ClassVar[bool] = True

    def __init__(self, width: int, base: float = 10000.0) -> None:
        super().__init__()
        refuse((width < 1, f"width must be ≥ 1, got {width}"))
        self.width, self.base = width, base

    def forward(self, features: Tensor, start: int | Tensor = 0) -> Tensor:
        """Add the rows of positions start, start + 1, … to features (B, T, E).

        Args:
            features: (B, T, E).
            start: the position of the first row, one number or (B,).
        """
        steps = torch.arange(features.shape[-2], device=features.device)
        positions = steps + start if isinstance(start, int) else steps + start[:, None]
        return features + waves(positions, self.width, self.base).to(features.dtype)

    def extra_repr(self) -> str:
        """Return the width."""
        return f"width={self.width}"
