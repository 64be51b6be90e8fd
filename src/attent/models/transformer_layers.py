"""The layers of the Transformer and the two stacks of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from attent.attention.cache import KeyValueCache
from attent.attention.masks import Causal
from attent.attention.multihead import MultiHeadAttention
from attent.attention.positions.learned import Learned
from attent.attention.positions.sinusoidal import Sinusoidal
from attent.layers.dropout import Dropout
from attent.layers.embeddings import TokenEmbedding
from attent.layers.feed_forward import FeedForward
from attent.layers.residual import Residual, Stream
from attent.models.encoder_decoder import Memory
from attent.models.encoder_settings import EncoderSettings
from attent.models.transformer_settings import StackSettings, TransformerSettings
from attent.types import Features, Lengths, Tokens

ADDED_TO_EMBEDDINGS = ("sinusoidal", "learned", "none")


def attention(settings: StackSettings, *, to_self: bool) -> MultiHeadAttention:
    """One attention sub-layer; positions that live inside attention relate a sequence to itself only."""
    inside = to_self and settings.position not in ADDED_TO_EMBEDDINGS
    layer = MultiHeadAttention(
        settings.width,
        settings.heads,
        key_value_heads=settings.key_value_heads,
        score=settings.score,
        normalizer=settings.normaliser,
        position=settings.position if inside else None,
        dropout=settings.attention_dropout,
    )
    for projection in (layer.query_projection, layer.key_projection, layer.value_projection, layer.output):
        assert isinstance(projection, nn.Linear)
        nn.init.xavier_uniform_(projection.weight)
        nn.init.zeros_(projection.bias)
    return layer


def residual(settings: StackSettings) -> Residual:
    """The connection around one sub-layer."""
    return Residual(settings.width, settings.norm, settings.dropout)


def last_norm(settings: StackSettings) -> nn.Module:
    """What ends a stack: with pre-norm its output has not been normalised yet."""
    return nn.LayerNorm(settings.width) if settings.norm == "pre" else nn.Identity()


def positions(settings: StackSettings) -> Sinusoidal | Learned | None:
    """What is added to embeddings for their positions; None where positions live inside attention, or there are none."""
    match settings.position:
        case "sinusoidal":
            return Sinusoidal(settings.width)
        case "learned":
            return Learned(settings.width, settings.maximum_length)
        case _:
            return None


class Embedding(nn.Module):
    """Token embedding, plus positions where these are added, with dropout on the sum (Vaswani et al. 2017, §5.4)."""

    def __init__(self, tokens: TokenEmbedding, settings: TransformerSettings) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions(settings)
        self.dropout = Dropout(settings.dropout)

    def forward(self, tokens: Tokens, start: int | Tensor = 0) -> Features:
        """(B, T) → (B, T, E); the first token stands at position start, one number or (1,)."""
        features = self.tokens(tokens)
        return self.dropout(features if self.positions is None else self.positions(features, start))

    def added(self, start: int, count: int) -> Tensor | None:
        """What so many positions from start on add to embeddings, (T, E); None where nothing is added."""
        weight = self.tokens.weight
        return None if self.positions is None else self.positions(weight.new_zeros(1, count, weight.shape[1]), start)[0]


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with its residual connection.

        Z = LayerNorm(X + MultiHead(X, X, X));  LayerNorm(Z + FFN(Z))

    Source: Vaswani et al. (2017), §3.1, arXiv 1706.03762 (here with norm = "post").
    """

    def __init__(self, settings: StackSettings) -> None:
        super().__init__()
        self.self_attention = attention(settings, to_self=True)
        self.feed_forward = FeedForward(settings.width, settings.feed_forward, activation=settings.activation)
        self.around_attention, self.around_feed_forward = residual(settings), residual(settings)

    def forward(self, stream: Stream, lengths: Lengths) -> Stream:
        """(B, T, E) → (B, T, E); positions from lengths on are seen by none."""
        stream, read = self.around_attention.enter(stream)
        # Queries are the keys, so they start at 0 whatever the length; by default the last query stands at the last real key.
        stream = self.around_attention.leave(stream, self.self_attention(read, lengths=lengths, query_start=0))
        stream, read = self.around_feed_forward.enter(stream)
        return self.around_feed_forward.leave(stream, self.feed_forward(read))


class DecoderLayer(nn.Module):
    """Self-attention to what is already written, attention to the source, and feed-forward.

        Z = LayerNorm(Y + MultiHead(Y, Y, Y)), causal;  Z' = LayerNorm(Z + MultiHead(Z, M, M));  LayerNorm(Z' + FFN(Z'))

    Source: Vaswani et al. (2017), §3.1, arXiv 1706.03762 (here with norm = "post"; M is the encoder's output).
    """

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.self_attention = attention(settings, to_self=True)
        self.cross_attention = attention(settings, to_self=False)
        self.feed_forward = FeedForward(settings.width, settings.feed_forward, activation=settings.activation)
        self.around_self, self.around_cross, self.around_feed_forward = (residual(settings) for _ in range(3))

    def forward(
        self, stream: Stream, written: KeyValueCache | None, source: KeyValueCache | Tensor, lengths: Lengths
    ) -> tuple[Stream, KeyValueCache]:
        """Any number of further steps at once.

        Args:
            stream: the new positions, (B, T, E).
            written: keys and values of the positions before them; None at the start.
            source: keys and values of the memory, or its features (B, Tk, E).
            lengths: how many of the source's keys are real, (B,).

        Returns:
            The new positions' stream (B, T, E), and the cache that now holds them too.
        """
        if isinstance(source, Tensor):
            source = self.cross_attention.remember(source)
        stream, query = self.around_self.enter(stream)
        written = self.self_attention.remember(query, written)
        # Right-padded target positions need no lengths: they come after every real one, so causality hides them.
        stream = self.around_self.leave(stream, self.self_attention.recall(query, written, mask=Causal()))
        stream, query = self.around_cross.enter(stream)
        stream = self.around_cross.leave(stream, self.cross_attention.recall(query, source, lengths=lengths))
        stream, read = self.around_feed_forward.enter(stream)
        return self.around_feed_forward.leave(stream, self.feed_forward(read)), written


class Encoder(nn.Module):
    """A stack of encoder layers."""

    def __init__(self, settings: TransformerSettings | EncoderSettings) -> None:
        super().__init__()
        layers = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.encoder_layers))
        self.layers = cast(Sequence[EncoderLayer], layers)
        self.norm = last_norm(settings)

    def forward(self, features: Features, lengths: Lengths) -> Memory:
        """Embedded source (B, Tk, E) of which lengths (B,) are real → memory."""
        stream = Stream(features)
        for layer in self.layers:
            stream = layer(stream, lengths)
        return Memory(stream.end(self.norm), lengths)


class Decoder(nn.Module):
    """A stack of decoder layers."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        layers = nn.ModuleList(DecoderLayer(settings) for _ in range(settings.decoder_layers))
        self.layers = cast(Sequence[DecoderLayer], layers)
        self.norm = last_norm(settings)

    def remember(self, memory: Memory) -> tuple[KeyValueCache, ...]:
        """Every layer's keys and values of the memory, computed once for all steps."""
        return tuple(layer.cross_attention.remember(memory.features) for layer in self.layers)

    def forward(
        self,
        features: Features,
        written: tuple[KeyValueCache | None, ...],
        source: tuple[KeyValueCache | Tensor, ...],
        lengths: Lengths,
    ) -> tuple[Features, tuple[KeyValueCache, ...]]:
        """Embedded new positions (B, T, E) → their features and every layer's cache that now holds them.

        The source is each layer's keys and values of the memory, or the memory's features, of which each layer makes its own.
        """
        stream, caches = Stream(features), []
        for layer, own, cross in zip(self.layers, written, source, strict=True):
            stream, cache = layer(stream, own, cross, lengths)
            caches.append(cache)
        return stream.end(self.norm), tuple(caches)
