"""A Gaussian around a center for each query, as in local attention."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention.base import Pairs, Weighting
from attent.errors import ArgumentError, ShapeError


@dataclass(frozen=True, eq=False)
class GaussianWindow(Weighting):
    """The weights times a Gaussian about each query's center, exp(−(j − pᵢ)² / 2σ²), not normalized again.

    Luong, Pham and Manning 2015, §3.2 eq. 10 (arXiv:1508.04025), whose σ is half of their window's D. Gradients reach
    the centers.

    Args:
        centers: p, the key position that each query attends to, in tokens from 0, (B|1, Tq).
        sigma: σ, in tokens, > 0.

    Raises:
        ShapeError: `centers` does not have two axes.
        ArgumentError: sigma is not positive.
    """

    centers: Tensor
    sigma: float
    aliases: ClassVar[tuple[str, ...]] = ("local_p",)

    def __post_init__(self) -> None:
        if self.centers.dim() != 2:
            raise ShapeError(f"centers must be (B|1, Tq), got {tuple(self.centers.shape)}")
        if not self.sigma > 0:
            raise ArgumentError(f"sigma must be > 0, got {self.sigma!r}")

    def factors(self, pairs: Pairs) -> Tensor:
        """Return the factors, (B|1, 1, Tq, Tk)."""
        distances = pairs.key_index - self.centers[:, None, pairs.query_index, None]
        return torch.exp(-0.5 * (distances / self.sigma).square())

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raise ShapeError unless there is a center for each query."""
        if self.centers.shape[0] not in (1, batch) or self.centers.shape[1] != queries:
            raise ShapeError(f"centers must be (B|1, Tq) = ({batch}, {queries}), got {tuple(self.centers.shape)}")
