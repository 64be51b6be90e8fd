"""Luong's location-based score."""

from __future__ import annotations

import math
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from attent.attention.base import Score, Side
from attent.errors import ArgumentError, ShapeError


class Location(Score):
    """What the query alone says of a key's place: score(q, k) = (Wᵀq)ⱼ, k being the j-th key.

    Luong, Pham and Manning 2015, §3.1 eq. 8, "location" (arXiv:1508.04025), written there a_t = softmax(W_a h_t). The keys'
    features are not looked at: a key is the place where it stands, counted from 0, and W has a column for each.

    Args:
        query_width: Dq.
        maximum_length: how many places W has columns for, in tokens.
        heads: a W for each of so many heads; one shared W if not given.

    Raises:
        ArgumentError: maximum_length is not positive.
    """

    aliases: ClassVar[tuple[str, ...]] = ("location_based",)

    def __init__(self, query_width: int, maximum_length: int = 256, heads: int | None = None) -> None:
        super().__init__()
        if maximum_length < 1:
            raise ArgumentError(f"maximum_length must be ≥ 1, got {maximum_length}")
        self.query_width, self.maximum_length, self.heads = query_width, maximum_length, heads
        self.weight = nn.Parameter(torch.empty(*(() if heads is None else (heads,)), query_width, maximum_length))
        bound = 1.0 / math.sqrt(query_width)
        nn.init.uniform_(self.weight, -bound, bound)

    @classmethod
    def for_widths(cls, query_width: int, key_width: int, heads: int) -> Self:
        """A W for each head."""
        return cls(query_width, heads=heads)

    def check(self, query_width: int, key_width: int, heads: int) -> None:
        """The keys may be of any width."""
        super().check(query_width, key_width, heads)
        if query_width != self.query_width:
            raise ShapeError(f"Location was made for queries of width {self.query_width}, got {query_width}")

    def lower_query(self, query: Tensor, origin: Tensor | None = None) -> Side:
        """Wᵀq: the score of every place."""
        return Side(query @ self.weight.to(query.dtype))

    def lower_key(self, key: Tensor, origin: Tensor | None = None) -> Side:
        """The places 0 to Tk − 1."""
        return self.lower_later_key(key, 0)

    def lower_later_key(self, key: Tensor, start: int, origin: Tensor | None = None) -> Side:
        """The places from `start` on, as a feature of each key, (B, H, Tk, 1)."""
        places = self._places(key, start).to(key.dtype if key.dtype == torch.float64 else torch.float32)
        return Side(places[:, None].expand(*key.shape[:-1], 1))

    def between(self, query: Side, key: Side) -> Tensor:
        """Of each query's places those of the keys, (B, H, Tq, Tk)."""
        places = key.features[..., 0].long()[..., None, :]  # (B, H, 1, Tk)
        return query.features.gather(-1, places.expand(*query.features.shape[:-1], -1))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """(Wᵀq)ⱼ of queries (B, H, Tq, Dq) and keys (B, H, Tk, Dk): (B, H, Tq, Tk)."""
        return (query @ self.weight.to(query.dtype))[..., self._places(key, 0)]

    def _places(self, key: Tensor, start: int) -> Tensor:
        behind = start + key.shape[-2]
        if behind > self.weight.shape[-1]:
            raise ShapeError(f"Location was made for up to {self.maximum_length} keys, got {behind}; give maximum_length")
        return torch.arange(start, behind, device=key.device)

    def extra_repr(self) -> str:
        """The number of places, and the heads where they differ."""
        return ", ".join(filter(None, (f"maximum_length={self.maximum_length}", super().extra_repr())))
