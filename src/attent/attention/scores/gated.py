"""A score times a learned gate."""

import math
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from attent.attention.base import Score
from attent.attention.scores.dot import Dot


class Gated(Score):
    """An inner score times a gate between 0 and 1: score(q, k) = σ(W_g[q; k] + b_g) · inner(q, k).

    The gate is that of the long short-term memory (Hochreiter and Schmidhuber 1997). The score has neither a dot form
    nor a tanh form, so it runs tiled.

    Args:
        query_width: Dq.
        key_width: Dk.
        inner: the inner score; the dot product if not given.
        heads: the number of heads with their own gate; one shared gate if not given.
        bias: True for a term b_g.
    """

    aliases: ClassVar[tuple[str, ...]] = ("gate",)

    def __init__(
        self, query_width: int, key_width: int, inner: Score | None = None, heads: int | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        self.inner = Dot() if inner is None else inner
        self.heads = heads if heads is not None else self.inner.heads
        self.widths = (query_width, key_width)
        per_head = () if heads is None else (heads,)
        self.query_weight = nn.Parameter(torch.empty(*per_head, query_width, 1))
        self.key_weight = nn.Parameter(torch.empty(*per_head, key_width, 1))
        self.bias = nn.Parameter(torch.zeros(*per_head, 1, 1)) if bias else None
        bound = 1.0 / math.sqrt(query_width + key_width)
        nn.init.uniform_(self.query_weight, -bound, bound)
        nn.init.uniform_(self.key_weight, -bound, bound)

    @classmethod
    def for_widths(cls, query_width: int, key_width: int, heads: int) -> Self:
        """Return the dot product with a gate for each head."""
        return cls(query_width, key_width, heads=heads)

    def check(self, query_width: int, key_width: int, heads: int) -> None:
        """Also raise ShapeError if the inner score does not fit."""
        super().check(query_width, key_width, heads)
        self.inner.check(query_width, key_width, heads)

    def per_pair(self, query_width: int) -> int:
        """Return the numbers in memory per pair of the inner score, which is not lowered."""
        return max(super().per_pair(query_width), self.inner.per_pair(query_width))

    def symbols(self) -> dict[str, Tensor]:
        """Return W_g and b_g, and the symbols of the inner score."""
        gate = {"W_g": torch.cat((self.query_weight, self.key_weight), -2)[..., 0]}
        return gate | ({} if self.bias is None else {"b_g": self.bias[..., 0]}) | self.inner.symbols()

    def steps(self, query: Tensor, key: Tensor) -> dict[str, Tensor]:
        """Return the gate, the steps of the inner score with its scores as `inner`, and the scores."""
        gate = query @ self.query_weight.to(query.dtype) + (key @ self.key_weight.to(key.dtype)).mT  # (B, H, Tq, Tk)
        gate = torch.sigmoid(gate if self.bias is None else gate + self.bias.to(query.dtype))
        inner_steps = self.inner.steps(query, key)
        inner = inner_steps.pop("scores")
        return {"gate": gate, **inner_steps, "inner": inner, "scores": gate * inner}

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return σ(W_g[q; k] + b_g) · inner(q, k) of queries (B, H, Tq, Dq) and keys (B, H, Tk, Dk): (B, H, Tq, Tk)."""
        return self.steps(query, key)["scores"]
