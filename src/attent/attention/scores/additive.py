"""Bahdanau's additive score."""

import math
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from attent.attention.base import LoweredSide, TanhScore


class Additive(TanhScore):
    """A one-layer network of query and key: score(q, k) = vᵀ tanh(W₁q + W₂k + b).

    Bahdanau, Cho and Bengio 2015, "Neural Machine Translation by Jointly Learning to Align and Translate", §3.1 and
    A.1.2 (arXiv:1409.0473): their s_{i−1} is our query, h_j our key, W_a our W₁, U_a our W₂. hidden=1 and v=False give
    the form tanh(W[s; h] + b) of some texts.

    Args:
        query_width: Dq.
        key_width: Dk, which may differ.
        hidden: the width inside the tanh.
        heads: the number of heads with their own parameters; shared parameters if not given.
        bias: True for a term b.
        v: True for a vector v; without it the components of the tanh are summed.
    """

    aliases: ClassVar[tuple[str, ...]] = ("bahdanau", "mlp")

    def __init__(
        self, query_width: int, key_width: int, hidden: int, heads: int | None = None, bias: bool = True, v: bool = True
    ) -> None:
        super().__init__()
        self.heads, self.hidden, self.widths = heads, hidden, (query_width, key_width)
        per_head = () if heads is None else (heads,)
        self.query_weight = nn.Parameter(torch.empty(*per_head, query_width, hidden))
        self.key_weight = nn.Parameter(torch.empty(*per_head, key_width, hidden))
        self.bias = nn.Parameter(torch.zeros(*per_head, hidden)) if bias else None
        self.v = nn.Parameter(torch.empty(*per_head, hidden)) if v else None
        for parameter, fan_in in ((self.query_weight, query_width), (self.key_weight, key_width), (self.v, hidden)):
            if parameter is not None:
                nn.init.uniform_(parameter, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    @classmethod
    def for_widths(cls, query_width: int, key_width: int, heads: int) -> Self:
        """Return a score with parameters for each head, with the key's width inside the tanh."""
        return cls(query_width, key_width, key_width, heads)

    def output_weights(self, like: Tensor) -> Tensor:
        """Return v as (H|1, 1, 1, hidden); ones if there is no v."""
        if self.v is None:
            return like.new_ones(1, 1, 1, self.hidden)
        return self.v.to(like.dtype).reshape(-1, 1, 1, self.hidden)

    def symbols(self) -> dict[str, Tensor]:
        """Return W₁, W₂, and b and v if present."""
        vectors = {"b": self.bias, "v": self.v}
        return {"W₁": self.query_weight.mT, "W₂": self.key_weight.mT} | {
            name: part for name, part in vectors.items() if part is not None
        }

    def lower_query(self, query: Tensor, center: Tensor | None = None) -> LoweredSide:
        """Return W₁q + b."""
        projected = query @ self.query_weight.to(query.dtype)  # (B, H, Tq, hidden)
        return LoweredSide(
            projected if self.bias is None else projected + self.bias.to(query.dtype).reshape(-1, 1, self.hidden)
        )

    def lower_key(self, key: Tensor, center: Tensor | None = None) -> LoweredSide:
        """Return W₂k."""
        return LoweredSide(key @ self.key_weight.to(key.dtype))

    def steps(self, query: Tensor, key: Tensor) -> dict[str, Tensor]:
        """Return W₁q + b, W₂k, the tanh of every sum (B, H, Tq, Tk, hidden), and the scores."""
        lowered_query, lowered_key = self.lower_query(query).features, self.lower_key(key).features
        hidden = torch.tanh(lowered_query[..., :, None, :] + lowered_key[..., None, :, :])
        return {
            "query_half": lowered_query,
            "key_half": lowered_key,
            "hidden": hidden,
            "scores": (hidden * self.output_weights(hidden)).sum(-1),
        }

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return vᵀtanh(W₁q + W₂k + b) of queries (B, H, Tq, Dq) and keys (B, H, Tk, Dk): (B, H, Tq, Tk)."""
        return self.steps(query, key)["scores"]
