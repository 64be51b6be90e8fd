"""From token numbers to feature vectors."""

from __future__ import annotations

import math

import torch
from torch import nn

from attent.axes import Features, Tokens


class TokenEmbedding(nn.Module):
    """A learnt vector for every token, scaled so that positions added to it are of like size.

        features = √E · W[token]

    Source: Vaswani et al. (2017), §3.4, arXiv 1706.03762. The rows start as N(0, 1/E), so that features start with
    variance 1 and the same matrix serves before the softmax.

    Args:
        size: how many tokens there are, V.
        width: the model width E.
        padding: the token whose row starts at zero and gets no gradient from here.
    """

    def __init__(self, size: int, width: int, *, padding: int = 0) -> None:
        super().__init__()
        self.scale = math.sqrt(width)
        self.padding = padding
        self.weight = nn.Parameter(torch.empty(size, width))
        nn.init.normal_(self.weight, std=1 / self.scale)
        with torch.no_grad():
            self.weight[padding].zero_()

    def forward(self, tokens: Tokens) -> Features:
        """(B, T) → (B, T, E)."""
        return self.scale * nn.functional.embedding(tokens, self.weight, padding_idx=self.padding)
