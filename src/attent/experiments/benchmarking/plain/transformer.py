"""PyTorch's own Transformer as a translator."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.data.batches import Batch
from attent.data.tokenizer import PAD
from attent.models.transformer_settings import TransformerSettings

# The longest sentence, in tokens.
LONGEST = 512


class PlainTransformer(nn.Module):
    """nn.Transformer with embeddings, sinusoidal positions and a tied output, its norms before each sub-layer.

    Args:
        settings: the sizes and the dropout.
        pieces: tokens in the one vocabulary of source and target.
    """

    positions: Tensor

    def __init__(self, settings: TransformerSettings, pieces: int) -> None:
        super().__init__()
        width = settings.width
        self.embedding = nn.Embedding(pieces, width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        place = torch.arange(float(LONGEST))[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        self.register_buffer("positions", torch.stack((place.sin(), place.cos()), -1).flatten(1))
        self.dropout = nn.Dropout(settings.dropout)
        with warnings.catch_warnings():
            # that its encoder has no faster way for norms before sub-layers
            warnings.filterwarnings("ignore", message="enable_nested_tensor")
            self.transformer = nn.Transformer(
                width,
                settings.heads,
                settings.encoder_layers,
                settings.decoder_layers,
                settings.feed_forward,
                settings.dropout,
                batch_first=True,
                norm_first=True,
            )

    def embedded(self, tokens: Tensor) -> Tensor:
        """Tokens (B, T) with their positions, (B, T, E)."""
        return self.dropout(self.embedding(tokens) * self.embedding.embedding_dim**0.5 + self.positions[: tokens.shape[1]])

    def forward(self, batch: Batch) -> Tensor:
        """The logits of every target token, (B, Tt, V)."""
        source, target = batch.source, batch.target_in
        hidden, ahead = source == PAD, torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        found = self.transformer(
            self.embedded(source), self.embedded(target), tgt_mask=ahead, src_key_padding_mask=hidden, memory_key_padding_mask=hidden,
            tgt_is_causal=True,
        )  # fmt: skip
        return F.linear(found, self.embedding.weight)
