"""Luong's concat score."""

import math
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from attent.attention.base import LoweredSide, TanhScore


class Concat(TanhScore):
    """A one-layer network of the concatenation of query and key: score(q, k) = vᵀ tanh(W[q; k]).

    Luong, Pham and Manning 2015, §3.1 eq. 8, "concat" (arXiv:1508.04025). With W = [W₁, W₂] it is the additive score
    without b.

    Args:
        query_width: Dq.
        key_width: Dk, which may differ.
        hidden: the width inside the tanh.
        heads: the number of heads with their own parameters; shared parameters if not given.
    """

    aliases: ClassVar[tuple[str, ...]] = ("luong_concat",)

    def __init__(self, query_width: int, key_width: int, hidden: int, heads: int | None = None) -> None:
        super().__init__()
        self.heads, self.hidden, self.widths, self.query_width = heads, hidden, (query_width, key_width), query_width
        per_head = () if heads is None else (heads,)
        self.weight = nn.Parameter(torch.empty(*per_head, query_width + key_width, hidden))
        self.v = nn.Parameter(torch.empty(*per_head, hidden))
        for parameter, fan_in in ((self.weight, query_width + key_width), (self.v, hidden)):
            nn.init.uniform_(parameter, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    @classmethod
    def for_widths(cls, query_width: int, key_width: int, heads: int) -> Self:
        """Return a score with parameters for each head, with the key's width inside the tanh."""
        return cls(query_width, key_width, key_width, heads)

    def output_weights(self, like: Tensor) -> Tensor:
        """Return v as (H|1, 1, 1, hidden)."""
        return self.v.to(like.dtype).reshape(-1, 1, 1, self.hidden)

    def symbols(self) -> dict[str, Tensor]:
        """Return W and v."""
        return {"W": self.weight.mT, "v": self.v}

    def lower_query(self, query: Tensor, center: Tensor | None = None) -> LoweredSide:
        """Return the product of q with its rows of W."""
        return LoweredSide(query @ self.weight[..., : self.query_width, :].to(query.dtype))

    def lower_key(self, key: Tensor, center: Tensor | None = None) -> LoweredSide:
        """Return the product of k with its rows of W."""
        return LoweredSide(key @ self.weight[..., self.query_width :, :].to(key.dtype))

    def steps(self, query: Tensor, key: Tensor) -> dict[str, Tensor]:
        """Return [q; k] of every pair, the tanh of its product with W, and the scores.

        They are (B, H, Tq, Tk, Dq + Dk), (B, H, Tq, Tk, hidden) and (B, H, Tq, Tk).
        """
        shape = (*query.shape[:-1], key.shape[-2], -1)
        sides = (query[..., :, None, :].expand(shape), key[..., None, :, :].expand(*shape[:-1], key.shape[-1]))
        weight = self.weight.to(query.dtype)
        weight = weight if self.heads is None else weight[:, None]  # (H, 1, Dq + Dk, hidden)
        pairs = torch.cat(sides, -1)
        hidden = torch.tanh(pairs @ weight)  # (B, H, Tq, Tk, hidden)
        return {"pairs": pairs, "hidden": hidden, "scores": (hidden * self.output_weights(hidden)).sum(-1)}

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return vᵀtanh(W[q; k]) of queries (B, H, Tq, Dq) and keys (B, H, Tk, Dk): (B, H, Tq, Tk)."""
        return self.steps(query, key)["scores"]
