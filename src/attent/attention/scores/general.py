"""Luong's multiplicative score."""

import math
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from attent.attention.base import DotScore, LoweredSide


class General(DotScore):
    """A bilinear form: score(q, k) = qᵀ W k.

    Luong, Pham and Manning 2015, §3.1 eq. 8, "general" (arXiv:1508.04025), written there h_tᵀ W_a h̄_s. W is folded
    into the query.

    Args:
        query_width: Dq.
        key_width: Dk, which may differ.
        heads: the number of heads with their own W; one shared W if not given.
        scale: a factor on qᵀWk, such as 1/√Dk against saturation.
    """

    aliases: ClassVar[tuple[str, ...]] = ("luong", "multiplicative", "bilinear")

    def __init__(self, query_width: int, key_width: int, heads: int | None = None, scale: float = 1.0) -> None:
        super().__init__()
        self.heads, self.widths, self.factor = heads, (query_width, key_width), scale
        self.weight = nn.Parameter(torch.empty(*(() if heads is None else (heads,)), query_width, key_width))
        bound = 1.0 / math.sqrt(query_width)
        nn.init.uniform_(self.weight, -bound, bound)

    @classmethod
    def for_widths(cls, query_width: int, key_width: int, heads: int) -> Self:
        """Return a score with a W for each head."""
        return cls(query_width, key_width, heads)

    def scale(self, width: int) -> float:
        """Return the factor on qᵀWk."""
        return self.factor

    def symbols(self) -> dict[str, Tensor]:
        """Return W."""
        return {"W": self.weight}

    def lower_query(self, query: Tensor, center: Tensor | None = None) -> LoweredSide:
        """Return Wᵀq."""
        return LoweredSide(query @ self.weight.to(query.dtype))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return qᵀWk, times the scale, of queries (B, H, Tq, Dq) and keys (B, H, Tk, Dk): (B, H, Tq, Tk)."""
        scores = query @ self.weight.to(query.dtype) @ key.transpose(-2, -1)
        return scores if self.factor == 1.0 else scores * self.factor

    def extra_repr(self) -> str:
        """Return the number of heads, if each has its own W, and the scale, if there is one."""
        scale = "" if self.factor == 1.0 else f"scale={self.factor:g}"
        return ", ".join(filter(None, (super().extra_repr(), scale)))
