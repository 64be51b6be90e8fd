"""The residual connection around a sub-layer, with layer normalization before or after it."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

from torch import Tensor, nn

from attent.layers.dropout import Dropout
from attent.ops.add_layer_norm import add_layer_norm
from attent.ops.eligibility import autocast_dtype

Norm = Literal["post", "pre"]


class Stream(NamedTuple):
    """The residual stream x + Dropout(f); with pre-norm, the next norm adds f, so that one sweep computes both."""

    features: Tensor  # x, (…, E)
    output: Tensor | None = None  # f, (…, E), of the last sub-layer, until it is added
    dropout: float = 0.0  # the dropout probability of f

    def normalize(self, norm: nn.LayerNorm) -> tuple[Stream, Tensor]:
        """Return the stream after the addition, and its normalized features in the dtype of autocast's products."""
        total, normalized = add_layer_norm(
            self.features, self.output, norm, self.dropout, autocast_dtype(self.features)
        )
        return Stream(total), normalized

    def end(self, norm: nn.Module) -> Tensor:
        """Return the output of a stack of layers; the final norm adds f."""
        return norm(self.features) if self.output is None else self.normalize(cast(nn.LayerNorm, norm))[1]


class Residual(nn.Module):
    """The residual connection around a sub-layer f.

        post: LayerNorm(x + Dropout(f(x)))         Vaswani et al. (2017), §3.1 and §5.4, arXiv 1706.03762
        pre:  x + Dropout(f(LayerNorm(x)))         Xiong et al. (2020), Figure 1 (b), arXiv 2002.04745

    A sub-layer is applied as `stream, x = enter(stream)` and `leave(stream, f(x))`, so that f can also read and return
    state.

    Args:
        width: the model width E.
        norm: "post" or "pre".
        dropout: the dropout probability of f's output in training, 0 to 1.
        epsilon: the number added to the variance in layer normalization.
    """

    def __init__(self, width: int, norm: Norm, dropout: float = 0.0, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.pre = norm == "pre"
        self.norm = nn.LayerNorm(width, epsilon)
        self.dropout = Dropout(dropout)

    def enter(self, stream: Stream) -> tuple[Stream, Tensor]:
        """Return the stream to pass to `leave`, and the input of the sub-layer, (…, E)."""
        return stream.normalize(self.norm) if self.pre else (stream, stream.features)

    def leave(self, stream: Stream, output: Tensor) -> Stream:
        """Return the stream after the sub-layer, given its output (…, E)."""
        if self.pre:
            return Stream(stream.features, output, self.dropout.active_share)
        return Stream(
            add_layer_norm(stream.features, output, self.norm, self.dropout.active_share, stream.features.dtype)[1]
        )
