"""A sub-layer's residual connection, with the layer normalisation after or before it."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from attent.layers.dropout import Dropout
from attent.ops.add_layer_norm import residual_norm

Norm = Literal["post", "pre"]


class Stream(NamedTuple):
    """What runs through the sub-layers, x + Dropout(f): with pre-norm it is added when it is normalised, by who reads it next."""

    features: Tensor  # (…, E)
    output: Tensor | None = None  # (…, E), of the last sub-layer, if it has not been added
    dropout: Dropout = Dropout(0.0)

    def normalised(self, norm: nn.LayerNorm) -> tuple[Stream, Tensor]:
        """The stream with nothing left to add, and its norm in the type that autocast's products take."""
        device = self.features.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else self.features.dtype
        together, normalised = residual_norm(self.features, self.output, self.dropout, self.dropout.active_share, norm, dtype)
        return Stream(together), normalised

    def end(self, norm: nn.Module) -> Tensor:
        """What a stack of layers makes of it: the last norm adds what has not been added."""
        return norm(self.features) if self.output is None else self.normalised(cast(nn.LayerNorm, norm))[1]


class Residual(nn.Module):
    """The way into a sub-layer f and out of it.

        post: LayerNorm(x + Dropout(f(x)))         Vaswani et al. (2017), §3.1 and §5.4, arXiv 1706.03762
        pre:  x + Dropout(f(LayerNorm(x)))         Xiong et al. (2020), Figure 1 (b), arXiv 2002.04745

    A sub-layer is written as `stream, read = enter(stream)` and `leave(stream, f(read))`, so that f may also read and return state.

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

    def enter(self, stream: Stream) -> tuple[Stream, Tensor]:
        """The stream to leave with, and what the sub-layer reads of it, (…, E)."""
        return stream.normalised(self.norm) if self.pre else (stream, stream.features)

    def leave(self, stream: Stream, output: Tensor) -> Stream:
        """What the next sub-layer gets, from this one's stream and output (…, E)."""
        if self.pre:
            return Stream(stream.features, output, self.dropout)
        return Stream(residual_norm(stream.features, output, self.dropout, self.dropout.active_share, self.norm, stream.features.dtype)[1])
