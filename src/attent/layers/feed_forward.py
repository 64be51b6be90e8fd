"""The position-wise feed-forward network."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.errors import UnknownNameError
from attent.ops import linear
from attent.ops.autograd import double_backward, needs_double_backward

Activation = Literal["relu", "gelu"]
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """Two linear maps with a nonlinearity between them, the same at every position.

        FFN(x) = max(0, x W₁ + b₁) W₂ + b₂

    Source: Vaswani et al. (2017), §3.3, equation 2, arXiv 1706.03762; with gelu Devlin et al. (2018), arXiv 1810.04805.

    Args:
        width: the model width E, of the input and of the output.
        hidden: the width between the two maps, the paper's d_ff.
        activation: "relu" (the paper's) or "gelu".

    Raises:
        UnknownNameError: no activation bears that name.
    """

    def __init__(self, width: int, hidden: int, *, activation: Activation = "relu") -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise UnknownNameError("activation", activation, ACTIVATIONS)
        self.activation = ACTIVATIONS[activation]
        self.widen = nn.Linear(width, hidden)
        self.narrow = nn.Linear(hidden, width)
        for layer in (self.widen, self.narrow):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, features: Tensor) -> Tensor:
        """(…, E) → (…, E)."""
        if self.activation is F.relu and linear.serves(features, self.widen) and linear.plain(self.narrow, self.narrow.in_features):
            parameters = (self.widen.weight, self.widen.bias, self.narrow.weight, self.narrow.bias)
            return _FeedForward.apply(features.to(torch.bfloat16).contiguous(), *parameters)
        (wide,) = linear.project(features, self.widen)
        return linear.project(self.activation(wide), self.narrow)[0]


class _FeedForward(torch.autograd.Function):
    """Both maps with relu between them, which costs no sweep of its own."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, *parameters: Tensor | None) -> Tensor:
        widen, widen_bias, narrow, narrow_bias = parameters
        assert widen is not None and narrow is not None
        (wide,) = linear.products(features, (widen,), (widen_bias,), relu=True)
        ctx.save_for_backward(features, *parameters, wide)
        return linear.products(wide, (narrow,), (narrow_bias,))[0]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        *inputs, wide = ctx.saved_tensors
        if needs_double_backward(slope):
            return double_backward(_formula, inputs, slope, ctx.needs_input_grad)
        features, widen, widen_bias, narrow, narrow_bias = inputs
        slope = slope.contiguous()
        of_narrow = linear.of_parameters(slope, wide, narrow_bias is not None)
        inside = linear.back((slope,), (narrow,), above=wide)
        of_widen = linear.of_parameters(inside, features, widen_bias is not None)
        return linear.back((inside,), (widen,)), *of_widen, *of_narrow


def _formula(features: Tensor, widen: Tensor, widen_bias: Tensor | None, narrow: Tensor, narrow_bias: Tensor | None) -> Tensor:
    return linear.linear(F.relu(linear.linear(features, widen, widen_bias)), narrow, narrow_bias)
