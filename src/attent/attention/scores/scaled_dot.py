"""The scaled dot product."""

import math
from typing import ClassVar

from torch import Tensor

from attent.attention.base import DotScore


class ScaledDot(DotScore):
    """The dot product over the root of the width: score(q, k) = qᵀk / √Dk.

    If the entries of q and k are independent with variance one, qᵀk has variance Dk; the division brings it back to
    one, so that the softmax does not saturate. Vaswani et al. 2017, "Attention Is All You Need", §3.2.1 eq. 1
    (arXiv:1706.03762).

    Args:
        scale: the factor on qᵀk; 1/√Dk if not given.
    """

    aliases: ClassVar[tuple[str, ...]] = ("scaled_dot_product", "vaswani")
    lowers_exactly: ClassVar[bool] = True

    def __init__(self, scale: float | None = None) -> None:
        super().__init__()
        self.factor = scale

    def scale(self, width: int) -> float:
        """Return 1/√Dk, or the given factor."""
        return 1.0 / math.sqrt(max(width, 1)) if self.factor is None else self.factor

    def steps(self, query: Tensor, key: Tensor) -> dict[str, Tensor]:
        """Return the products before the scale, and the scores."""
        products = query @ key.transpose(-2, -1)  # (B, H, Tq, Tk)
        return {"products": products, "scores": products * self.scale(query.shape[-1])}

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Return qᵀk / √D of queries (B, H, Tq, D) and keys (B, H, Tk, D): (B, H, Tq, Tk)."""
        return self.steps(query, key)["scores"]

    def extra_repr(self) -> str:
        """Return the factor, if one was given."""
        return "" if self.factor is None else f"scale={self.factor}"
