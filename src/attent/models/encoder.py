"""An encoder-only Transformer with an output layer for tokens or classes."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from attent.layers.dropout import Dropout
from attent.layers.embeddings import TokenEmbedding, VectorEmbedding
from attent.models.model import Model, check_source
from attent.models.settings import EncoderSettings
from attent.models.transformer_layers import Encoder, build_positions
from attent.ops import packed_linear
from attent.types import Features, Lengths


class EncoderModel(Model):
    """A Transformer's encoder and an output layer.

        H = Encoder([c; x₁; …; x_T] + positions);  logits = W h

    The output predicts tokens at their positions (masked language modeling), or classes at the position of the class
    vector c (`settings.cls`). `forward` returns the features, `output` computes logits from a selection of them, and a
    loss can fuse `to_logits` with the cross entropy.

    Source: Devlin et al. (2018), §3, arXiv 1810.04805; Dosovitskiy et al. (2020), §3.1, eq. 1–4, arXiv 2010.11929.
    Their positions are learned (`position = "learned"`).

    Args:
        settings: the settings of the model.
        inputs: the size of the vocabulary with `input = "tokens"`, else that of an input vector.
        outputs: the size of the vocabulary, or the number of classes.
    """

    def __init__(self, settings: EncoderSettings, inputs: int, outputs: int) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = (TokenEmbedding if settings.input == "tokens" else VectorEmbedding)(inputs, settings.width)
        self.cls = nn.Parameter(torch.randn(settings.width)) if settings.cls else None
        self.positions = build_positions(settings)
        self.dropout = Dropout(settings.dropout)
        self.encoder = Encoder(settings)
        self.to_logits = nn.Linear(settings.width, outputs, bias=settings.output_bias)
        nn.init.xavier_uniform_(self.to_logits.weight)
        if self.to_logits.bias is not None:
            nn.init.zeros_(self.to_logits.bias)

    @property
    def longest(self) -> int | None:
        """The maximum length of a sequence, not counting the class vector; None if there is no limit."""
        limit = super().longest
        return None if limit is None else limit - self.settings.cls

    @property
    def embeddings(self) -> Mapping[str, TokenEmbedding]:
        return {"text": self.embedding} if isinstance(self.embedding, TokenEmbedding) else {}

    def forward(self, sequence: Tensor, lengths: Lengths) -> Features:
        """Return the features of every position: (B, T, E), or (B, 1 + T, E) with a class vector, which comes first.

        Args:
            sequence: tokens (B, T) or vectors (B, T, D), right-padded.
            lengths: the number of real positions, (B,).

        Raises:
            ShapeError: the sequence does not have these axes, or there is not one length per row.
        """
        return self.encoder(*self._embed(sequence, lengths)).features

    def by_layer(self, sequence: Tensor, lengths: Lengths) -> list[Features]:
        """Return the features before the first layer and after each one, each in the form that `forward` returns.

        Raises:
            ShapeError: as for `forward`.
        """
        return self.encoder.by_layer(*self._embed(sequence, lengths))

    def _embed(self, sequence: Tensor, lengths: Lengths) -> tuple[Features, Lengths]:
        """Return the encoder's arguments: the embedded sequence and its lengths.

        The class vector and the positions are included.
        """
        check_source(sequence, lengths, self.settings.input, "a sequence", "T")
        features = self.embedding(sequence)
        if self.cls is not None:
            features, lengths = (
                torch.cat([self.cls.to(features.dtype).expand(len(features), 1, -1), features], 1),
                lengths + 1,
            )
        return self.dropout(features if self.positions is None else self.positions(features)), lengths

    def output(self, features: Tensor) -> Tensor:
        """Return the logits (…, V) of features (…, E)."""
        return packed_linear.linear(self.to_logits, features)
