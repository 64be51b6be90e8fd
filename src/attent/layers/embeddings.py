"""Embeddings of tokens and of other vectors."""

import math

import torch
from torch import Tensor, nn

from attent.errors import ShapeError
from attent.types import Features, Tokens


class TokenEmbedding(nn.Module):
    """A learned vector for every token, scaled to the magnitude of the positions that are added to it.

        features = √E · W[token]

    Source: Vaswani et al. (2017), §3.4, arXiv 1706.03762. Rows are initialized from N(0, 1/E), so that features
    start with variance 1 and the same matrix can be used before the softmax.

    Args:
        size: the number of tokens, V.
        width: the model width E.
        padding: the padding token; its row is initialized to zero and gets no gradient from this layer.
        is_scaled: whether to multiply by √E.
    """

    def __init__(self, size: int, width: int, *, padding: int = 0, is_scaled: bool = True) -> None:
        super().__init__()
        self.scale = math.sqrt(width) if is_scaled else 1.0
        self.padding = padding
        self.weight = nn.Parameter(torch.empty(size, width))
        nn.init.normal_(self.weight, std=1 / math.sqrt(width))
        with torch.no_grad():
            self.weight[padding].zero_()

    def forward(self, tokens: Tokens) -> Features:
        """Return the features (B, T, E) of tokens (B, T)."""
        return self.scale * nn.functional.embedding(tokens, self.weight, padding_idx=self.padding)


class VectorEmbedding(nn.Module):
    """A linear projection of every vector, such as the pixels of a picture's patch.

        features = W x + b

    Source: Dosovitskiy et al. (2020), §3.1, eq. 1, arXiv 2010.11929. For inputs with variance 1, features start with
    a variance of about 1, like those of tokens.

    Args:
        size: the width of a vector, D.
        width: the model width E.
    """

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.size = size
        self.projection = nn.Linear(size, width)
        nn.init.normal_(self.projection.weight, std=1 / math.sqrt(size))
        nn.init.zeros_(self.projection.bias)

    def forward(self, vectors: Tensor) -> Features:
        """Return the features (B, T, E) of vectors (B, T, D).

        Raises:
            ShapeError: the vectors have a different width.
        """
        if vectors.shape[-1] != self.size:
            raise ShapeError(f"vectors must have {self.size} numbers each, got {vectors.shape[-1]}")
        return self.projection(vectors)
