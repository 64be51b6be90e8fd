"""A Transformer's encoder alone: features of a sequence, and what is told from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from attent.errors import ShapeError
from attent.layers.dropout import Dropout
from attent.layers.embeddings import TokenEmbedding, VectorEmbedding
from attent.models.model import Model
from attent.models.settings import EncoderSettings
from attent.models.transformer_layers import Encoder, positions
from attent.ops import packed_linear
from attent.types import Features, Lengths


class EncoderModel(Model):
    """An encoder that reads a sequence, and a linear layer that tells something of its features.

        H = Encoder([c; x₁; …; x_T] + positions);  logits = W h

    Told are tokens from the place of each (a blank's word), or classes from that of the vector c in front (`settings.cls`):
    whichever it is for, `forward` gives the features, `output` turns those that are wanted into logits, and a loss may fuse
    `to_logits` with what follows.

    Source: Devlin et al. (2018), §3, arXiv 1810.04805; Dosovitskiy et al. (2020), §3.1, eq. 1–4, arXiv 2010.11929. There the
    positions are learnt (`position = "learned"`).

    Args:
        settings: everything but these two numbers.
        inputs: how many tokens there are to read, with `input = "tokens"`; else how many numbers a vector has.
        outputs: how many tokens or classes there are to tell.
    """

    def __init__(self, settings: EncoderSettings, inputs: int, outputs: int) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = (TokenEmbedding if settings.input == "tokens" else VectorEmbedding)(inputs, settings.width)
        self.cls = nn.Parameter(torch.randn(settings.width)) if settings.cls else None
        self.positions = positions(settings)
        self.dropout = Dropout(settings.dropout)
        self.encoder = Encoder(settings)
        self.to_logits = nn.Linear(settings.width, outputs, bias=settings.output_bias)
        nn.init.xavier_uniform_(self.to_logits.weight)
        if self.to_logits.bias is not None:
            nn.init.zeros_(self.to_logits.bias)

    @property
    def longest(self) -> int | None:
        """The most places of a sequence, apart from the vector in front; None where there is no limit."""
        most = self.limit(self.settings.maximum_length if self.settings.position == "learned" else None)
        return None if most is None else most - self.settings.cls

    @property
    def embeddings(self) -> Mapping[str, TokenEmbedding]:
        return {"text": self.embedding} if isinstance(self.embedding, TokenEmbedding) else {}

    @property
    def units(self) -> Sequence[nn.Module]:
        return (*self.encoder.layers,)

    def forward(self, sequence: Tensor, lengths: Lengths) -> Features:
        """Features of every place, (B, T, E); with a vector in front, which comes first, (B, 1 + T, E).

        Args:
            sequence: tokens (B, T), or vectors (B, T, D), filled up on the right.
            lengths: how many of the T are real, (B,).

        Raises:
            ShapeError: the sequence has other axes, or lengths are not one a row.
        """
        axes = 2 if self.settings.input == "tokens" else 3
        if sequence.dim() != axes or lengths.shape != sequence.shape[:1]:
            wanted = "(B, T)" if axes == 2 else "(B, T, D)"
            raise ShapeError(f"a sequence must be {wanted} and lengths (B,), got {tuple(sequence.shape)} and {tuple(lengths.shape)}")
        features = self.embedding(sequence)
        if self.cls is not None:
            features, lengths = torch.cat([self.cls.to(features.dtype).expand(len(features), 1, -1), features], 1), lengths + 1
        features = self.dropout(features if self.positions is None else self.positions(features))
        return self.encoder(features, lengths).features

    def output(self, features: Tensor) -> Tensor:
        """Logits of what is told from these features, (…, E) → (…, V)."""
        return packed_linear.linear(self.to_logits, features)
