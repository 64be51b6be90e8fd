"""Luong's location-based score."""

import math
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from attent.attention.base import LoweredSide, Score
from attent.errors import ShapeError, refuse


class Location(Score):
    """A score of the key's position that depends on the query alone: score(q, k) = (Wᵀq)ⱼ, k being the j-th key.

    Luong, Pham and Manning 2015, §3.1 eq. 8, "location" (arXiv:1508.04025), written there a_t = softmax(W_a h_t). The
    keys' features play no part: W has a column for each position, counted from 0.

    Args:
        query_width: Dq.
        maximum_length: the number of columns of W, in tokens.
        heads: the number of heads with their own W; one shared W if not given.

    Raises:
        ArgumentError: maximum_length is not positive.
    """

    aliases: ClassVar[tuple[str, ...]] = ("location_based",)

    def __init__(self, query_width: int, maximum_length: int = 256, heads: int | None = None) -> None:
        super().__init__()
        refuse((maximum_length < 1, f"maximum_length must be ≥ 1, got {maximum_length}"))
        self.query_width, self.maximum_length, self.heads = query_width, maximum_length, heads
        self.weight = nn.Parameter(torch.empty(*(() if heads is None else (heads,)), query_width, maximum_length))
        bound = 1.0 / math.sqrt(query_width)
        nn.init.uniform_(self.weight, -bound, bound)

    @classmethod
    def for_widths(cls, query_width: int, key_width: int, heads: int) -> Self:
        """Return a score with a W for each head."""
        return cls(query_width, heads=heads)

    def check(self, query_width: int, key_width: int, heads: int) -> None:
        """Raise ShapeError if queries have a different width; keys may have any width."""
        super().check(query_width, key_width, heads)
        if query_width != self.query_width:
            raise ShapeError(f"Location was made for queries of width {self.query_width}, got {query_width}")

    def symbols(self) -> dict[str, Tensor]:
        """Return W."""
        return {"W": self.weight}

    def lower_query(self, query: Tensor, center: Tensor | None = None) -> LoweredSide:
        """Return Wᵀq, the score of every position."""
        return LoweredSide(query @ self.weight.to(query.dtype))

    def lower_key(self, key: Tensor, center: Tensor | None = None) -> LoweredSide:
        """Return the positions 0 to Tk − 1."""
        return self.lower_later_key(key, 0)

    def lower_later_key(self, key: Tensor, start: int, center: Tensor | None = None) -> LoweredSide:
        """Return the positions from `start` on, as a feature of each key, (B, H, Tk, 1)."""
        positions = self._key_positions(key, start).to(key.dtype if key.dtype == torch.float64 else torch.float32)
        return LoweredSide(positions[:, None].expand(*key.shape[:-1], 1))

    def score_lowered(self, query: LoweredSide, key: LoweredSide) -> Tensor:
        """Return each query's scores of the keys' positions, (B, H, Tq, Tk)."""
        positions = key.features[..., 0].long()[..., None, :]  # (B, H, 1, Tk)
        return query.features.gather(-1, positions.expand(*query.features.shape[:-1], -1))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return (Wᵀq)ⱼ of queries (B, H, Tq, Dq) and keys (B, H, Tk, Dk): (B, H, Tq, Tk)."""
        return (query @ self.weight.to(query.dtype))[..., self._key_positions(key, 0)]

    def _key_positions(self, key: Tensor, start: int) -> Tensor:
        end = start + key.shape[-2]
        if end > self.weight.shape[-1]:
            raise ShapeError(
                f"Location was made for up to {self.maximum_length} keys, got {end}; increase maximum_length"
            )
        return torch.arange(start, end, device=key.device)

    def extra_repr(self) -> str:
        """Return the number of positions, and the number of heads if each has its own W."""
        return ", ".join(filter(None, (f"maximum_length={self.maximum_length}", super().extra_repr())))
