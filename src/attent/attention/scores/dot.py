"""The dot product."""

from typing import ClassVar

from torch import Tensor

from attent.attention.base import DotScore


class Dot(DotScore):
    """The plain dot product: score(q, k) = qᵀk.

    Luong, Pham and Manning 2015, "Effective Approaches to Attention-based Neural Machine Translation", §3.1 eq. 8,
    "dot" (arXiv:1508.04025); their h_t is our query, their h̄_s our key.
    """

    aliases: ClassVar[tuple[str, ...]] = ("dot_product", "luong_dot")
    lowers_exactly: ClassVar[bool] = True

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return qᵀk of queries (B, H, Tq, D) and keys (B, H, Tk, D): (B, H, Tq, Tk)."""
        return query @ key.transpose(-2, -1)
