"""A sub-layer's residual connection, with the layer normalisation after or before it."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from attent.layers.dropout import Dropout

Norm = Literal["post", "pre"]


class Residual(nn.Module):
    """The way into a sub-layer f and out of it.

        post: LayerNorm(x + Dropout(f(x)))         Vaswani et al. (2017), §3.1 and §5.4, arXiv 1706.03762
        pre:  x + Dropout(f(LayerNorm(x)))         Xiong et al. (2020), Figure 1 (b), arXiv 2002.04745

    A sub-layer is written as `leave(x, f(enter(x)))`, so that f may also read and return state.

    Args:
        width: the model width E.
        norm: "post" or "pre".
        dropout: the share of f's output that is dropped in training, 0 to 1.
    """

    def __init__(self, width: int, norm: Norm, dropout: float = 0.0) -> None:
        super().__init__()
        self.pre = norm == "pre"
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def enter(self, features: Tensor) -> Tensor:
        """What the sub-layer reads: (…, E) → (…, E)."""
        return self.norm(features) if self.pre else features

    def leave(self, features: Tensor, output: Tensor) -> Tensor:
        """What the next sub-layer gets, from this one's input and output, both (…, E)."""
        features = features + self.dropout(output)
        return features if self.pre else self.norm(features)
