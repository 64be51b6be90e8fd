"""Pictures shifted, turned and scaled a little anew every epoch, so that a model learns what does not matter."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

# Numbers drawn for each picture: two shifts, a turn, a scale, a flip.
DRAWN = 5
# Tells these random numbers from those that shuffle.
STREAM = 0x7075


@dataclass(frozen=True)
class Augmentation:
    """How much pictures vary. What becomes of a picture is a function of (seed, epoch, row), so that a run can be taken up again.

    Args:
        shift: pixels up, down, left and right at most.
        turn: degrees either way at most.
        scale: share by which a picture grows or shrinks at most.
        flip: whether left and right are exchanged half of the time.
        seed: of the random numbers.
    """

    shift: float = 0.0
    turn: float = 0.0
    scale: float = 0.0
    flip: bool = False
    seed: int = 0

    @property
    def changes(self) -> bool:
        """Whether it does anything."""
        return bool(self.shift or self.turn or self.scale or self.flip)

    def drawn(self, count: int, epoch: int) -> np.ndarray:
        """The random numbers of an epoch for each of so many pictures, (N, 5) from -1 to 1."""
        generator = np.random.default_rng((self.seed, epoch, STREAM))
        return generator.uniform(-1, 1, (count, DRAWN)).astype(np.float32)

    def __call__(self, pictures: Tensor, drawn: np.ndarray) -> Tensor:
        """Pictures (B, H, W, C) of float32 varied by their rows of `drawn`; what comes in from outside repeats the border."""
        height, width = pictures.shape[1:3]
        down, right, turn, scale, flip = torch.from_numpy(drawn).unbind(1)
        angle, zoom = turn * math.radians(self.turn), torch.exp(scale * math.log1p(self.scale))
        mirror = torch.where(flip < 0, -1.0, 1.0) if self.flip else torch.ones(())
        # from where each pixel is taken: the grid runs from -1 to 1 over the whole height and width, which may differ
        along, across = torch.cos(angle) * zoom, torch.sin(angle) * zoom
        to_right = torch.stack((along * mirror, -across * (height / width) * mirror, 2 * self.shift / width * right), 1)
        to_down = torch.stack((across * (width / height), along, 2 * self.shift / height * down), 1)
        planes = pictures.permute(0, 3, 1, 2)
        grid = F.affine_grid(torch.stack((to_right, to_down), 1), list(planes.shape), align_corners=False)
        return F.grid_sample(planes, grid, padding_mode="border", align_corners=False).permute(0, 2, 3, 1)
