"""The layers, encoder and decoders of Transformers."""

from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor, nn

from attent.attention.cache import KeyValueCache
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.masks import Causal
from attent.attention.multihead import MultiHeadAttention
from attent.attention.positions.learned import Learned
from attent.attention.positions.sinusoidal import Sinusoidal
from attent.layers.dropout import Dropout
from attent.layers.embeddings import TokenEmbedding, VectorEmbedding
from attent.layers.feed_forward import FeedForward
from attent.layers.recurrent import RecurrentState
from attent.layers.residual import Residual, Stream
from attent.layers.ssru import SSRU
from attent.models.model import Memory
from attent.models.settings import DecoderSettings, EncoderSettings, StackSettings, TransformerSettings
from attent.types import Features, Lengths

SubLayers = tuple[tuple[MultiHeadAttention | SSRU | FeedForward, Residual], ...]
# What a decoder layer keeps of the target so far.
Past = KeyValueCache | RecurrentState


def build_attention(settings: StackSettings, *, to_self: bool) -> MultiHeadAttention:
    """Build an attention sub-layer; relative and rotary positions exist in self-attention only."""
    has_position = to_self and settings.position not in ("sinusoidal", "learned", "none")
    layer = MultiHeadAttention(
        settings.width,
        settings.heads,
        key_value_heads=settings.key_value_heads,
        score=settings.score,
        normalizer=settings.normalizer,
        position=settings.position if has_position else None,
        dropout=settings.attention_dropout,
    )
    for projection in (layer.query_projection, layer.key_projection, layer.value_projection, layer.output):
        assert isinstance(projection, nn.Linear)
        nn.init.xavier_uniform_(projection.weight)
        nn.init.zeros_(projection.bias)
    return layer


def build_residual(settings: StackSettings) -> Residual:
    """Build the residual connection of a sub-layer."""
    return Residual(settings.width, settings.norm, settings.dropout, getattr(settings, "norm_epsilon", 1e-5))


def build_final_norm(settings: StackSettings) -> nn.Module:
    """Build the final norm of a stack, which only pre-norm needs."""
    epsilon = getattr(settings, "norm_epsilon", 1e-5)
    return nn.LayerNorm(settings.width, epsilon) if settings.norm == "pre" else nn.Identity()


def build_positions(settings: StackSettings) -> Sinusoidal | Learned | None:
    """Build the positions added to embeddings; None if there are none, or if they are part of attention."""
    match settings.position:
        case "sinusoidal":
            return Sinusoidal(settings.width)
        case "learned":
            return Learned(settings.width, settings.maximum_length)
        case _:
            return None


class Embedding(nn.Module):
    """Embedding of tokens or vectors plus positions, with dropout on the sum (Vaswani et al. 2017, §5.4)."""

    def __init__(self, tokens: TokenEmbedding | VectorEmbedding, settings: StackSettings) -> None:
        super().__init__()
        self.tokens: Any = tokens
        self.positions = build_positions(settings)
        self.dropout = Dropout(settings.dropout)

    def forward(self, tokens: Tensor, start: int | Tensor = 0) -> Features:
        """Embed tokens (B, T) or vectors (B, T, D) as (B, T, E); the first has position `start`, an int or (1,)."""
        features = self.tokens(tokens)
        return self.dropout(features if self.positions is None else self.positions(features, start))

    def position_features(self, start: int, count: int) -> Tensor | None:
        """Return the features (T, E) added to embeddings at `count` positions from `start`; None if there are none."""
        weight = self.tokens.weight
        return None if self.positions is None else self.positions(weight.new_zeros(1, count, weight.shape[1]), start)[0]


class SelfAttentionLayer(nn.Module):
    """The parts of a layer of self-attention and feed-forward, each with its residual connection."""

    def __init__(self, settings: StackSettings) -> None:
        super().__init__()
        self.self_attention = build_attention(settings, to_self=True)
        self.feed_forward = FeedForward(settings.width, settings.feed_forward, activation=settings.activation)
        self.around_attention, self.around_feed_forward = build_residual(settings), build_residual(settings)

    @property
    def sub_layers(self) -> SubLayers:
        """The sub-layers in order, each with its residual connection."""
        return (self.self_attention, self.around_attention), (self.feed_forward, self.around_feed_forward)


class EncoderLayer(SelfAttentionLayer):
    """Self-attention and feed-forward, each with its residual connection.

        post: Z = LayerNorm(X + MultiHead(X, X, X));  LayerNorm(Z + FFN(Z))
        pre: N = LayerNorm(X);  Z = X + MultiHead(N, N, N);  Z + FFN(LayerNorm(Z))

    Source: Vaswani et al. (2017), §3.1, arXiv 1706.03762.
    """

    def forward(self, stream: Stream, lengths: Lengths) -> Stream:
        """Transform features (B, T, E); keys at or beyond the lengths (B,) are hidden."""
        stream, read = self.around_attention.enter(stream)
        stream = self.around_attention.leave(stream, self.self_attention(read, lengths=lengths))
        stream, read = self.around_feed_forward.enter(stream)
        return self.around_feed_forward.leave(stream, self.feed_forward(read))


class DecoderLayer(nn.Module):
    """Causal self-attention to the target, attention to the source, and feed-forward.

        post: Z = LayerNorm(Y + MultiHead(Y, Y, Y)), causal;  Z' = LayerNorm(Z + MultiHead(Z, M, M));
            LayerNorm(Z' + FFN(Z'))
        pre: N = LayerNorm(Y);  Z = Y + MultiHead(N, N, N), causal;  Z' = Z + MultiHead(LayerNorm(Z), M, M);
            Z' + FFN(LayerNorm(Z'))

    Source: Vaswani et al. (2017), §3.1, arXiv 1706.03762; M is the encoder's output. With self_attention = "ssru", a
    recurrent unit takes the place of self-attention (`SSRU`).
    """

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        is_recurrent = settings.self_attention == "ssru"
        self.self_attention = SSRU(settings.width) if is_recurrent else build_attention(settings, to_self=True)
        self.cross_attention = build_attention(settings, to_self=False)
        self.feed_forward = FeedForward(settings.width, settings.feed_forward, activation=settings.activation)
        self.around_self, self.around_cross, self.around_feed_forward = (build_residual(settings) for _ in range(3))

    @property
    def sub_layers(self) -> SubLayers:
        """The sub-layers in order, each with its residual connection."""
        return (
            (self.self_attention, self.around_self),
            (self.cross_attention, self.around_cross),
            (self.feed_forward, self.around_feed_forward),
        )

    def forward(
        self, stream: Stream, target: Past | None, source: KeyValueCache | Tensor, lengths: Lengths
    ) -> tuple[Stream, Past]:
        """Transform the next T positions.

        Args:
            stream: the features of these positions, (B, T, E).
            target: keys and values of the previous positions, or the unit's state; None at the start.
            source: keys and values of the memory, or its features (B, Tk, E).
            lengths: the number of real keys in the memory, (B,).

        Returns:
            The transformed features, and keys and values, or a state, that include the new positions.
        """
        if isinstance(source, Tensor):
            source = self.cross_attention.remember(source)
        stream, target = self._attend_to_target(stream, target)
        stream, query = self.around_cross.enter(stream)
        stream = self.around_cross.leave(stream, self.cross_attention.recall(query, source, lengths=lengths))
        stream, read = self.around_feed_forward.enter(stream)
        return self.around_feed_forward.leave(stream, self.feed_forward(read)), target

    def source_attention(self, stream: Stream, memory: Memory) -> AttentionMap:
        """Return the map (B, H, T, Tk) of the attention to the source for all T positions, without its context."""
        stream, _ = self._attend_to_target(stream, None)
        _, query = self.around_cross.enter(stream)
        return self.cross_attention.recall_map(query, memory.features, lengths=memory.lengths)

    def _attend_to_target(self, stream: Stream, target: Past | None) -> tuple[Stream, Past]:
        stream, query = self.around_self.enter(stream)
        if isinstance(self.self_attention, SSRU):
            output, state = self.self_attention(query, cast(RecurrentState | None, target))
            return self.around_self.leave(stream, output), state
        assert not isinstance(target, RecurrentState)
        target = self.self_attention.remember(query, target)
        # A right-padded target needs no lengths: the causal mask hides padding from all real positions.
        return self.around_self.leave(stream, self.self_attention.recall(query, target, mask=Causal())), target


class CausalLayer(SelfAttentionLayer):
    """Causal self-attention and feed-forward: a decoder's layer without a source.

        post: Z = LayerNorm(X + MultiHead(X, X, X)), causal;  LayerNorm(Z + FFN(Z))
        pre: N = LayerNorm(X);  Z = X + MultiHead(N, N, N), causal;  Z + FFN(LayerNorm(Z))

    Source: Liu et al. (2018), §4.2.2, arXiv 1801.10198; Radford et al. (2018), §3.1.
    """

    def forward(self, stream: Stream, cache: KeyValueCache | None) -> tuple[Stream, KeyValueCache]:
        """Transform the next T positions, (B, T, E), given the keys and values of previous positions.

        Also return the keys and values including the new positions.
        """
        stream, query = self.around_attention.enter(stream)
        cache = self.self_attention.remember(query, cache)
        # right padding needs no lengths: the causal mask hides it from all real positions
        stream = self.around_attention.leave(stream, self.self_attention.recall(query, cache, mask=Causal()))
        stream, read = self.around_feed_forward.enter(stream)
        return self.around_feed_forward.leave(stream, self.feed_forward(read)), cache


class Encoder(nn.Module):
    """A stack of encoder layers."""

    def __init__(self, settings: TransformerSettings | EncoderSettings) -> None:
        super().__init__()
        self.layers = cast(
            Sequence[EncoderLayer], nn.ModuleList(EncoderLayer(settings) for _ in range(settings.encoder_layers))
        )
        self.norm = build_final_norm(settings)

    def forward(self, features: Features, lengths: Lengths) -> Memory:
        """Encode an embedded source (B, Tk, E) with real lengths (B,)."""
        stream = Stream(features)
        for layer in self.layers:
            stream = layer(stream, lengths)
        return Memory(stream.end(self.norm), lengths)

    def by_layer(self, features: Features, lengths: Lengths) -> list[Features]:
        """Return the features before the first layer and after each layer, (B, T, E).

        The last ones are normalized as in `forward`.
        """
        stream, by_layer = Stream(features), [features]
        for layer in self.layers:
            stream = layer(stream, lengths)
            by_layer.append(stream.features if stream.output is None else stream.features + stream.output)
        return [*by_layer[:-1], stream.end(self.norm)]


class Decoder(nn.Module):
    """A stack of decoder layers."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.layers = cast(
            Sequence[DecoderLayer], nn.ModuleList(DecoderLayer(settings) for _ in range(settings.decoder_layers))
        )
        self.norm = build_final_norm(settings)

    def forward(
        self,
        features: Features,
        target: tuple[Past | None, ...],
        source: tuple[KeyValueCache | Tensor, ...],
        lengths: Lengths,
    ) -> tuple[Features, tuple[Past, ...]]:
        """Return the features of the next T positions, embedded (B, T, E), and what every layer keeps of the target.

        See `DecoderLayer.forward`; `target` and `source` have one entry per layer.
        """
        stream, caches = Stream(features), []
        for layer, layer_target, layer_source in zip(self.layers, target, source, strict=True):
            stream, cache = layer(stream, layer_target, layer_source, lengths)
            caches.append(cache)
        return stream.end(self.norm), tuple(caches)

    def source_attention(self, features: Features, memory: Memory, layer: int) -> AttentionMap:
        """Return the map (B, H, T, Tk) of a layer's attention to the source, given embedded positions (B, T, E)."""
        stream = Stream(features)
        for index in range(layer):
            stream, _ = self.layers[index](stream, None, memory.features, memory.lengths)
        return self.layers[layer].source_attention(stream, memory)


class CausalDecoder(nn.Module):
    """A stack of causal layers."""

    def __init__(self, settings: DecoderSettings) -> None:
        super().__init__()
        self.layers = cast(Sequence[CausalLayer], nn.ModuleList(CausalLayer(settings) for _ in range(settings.layers)))
        self.norm = build_final_norm(settings)

    def forward(
        self, features: Features, caches: Sequence[KeyValueCache | None]
    ) -> tuple[Features, tuple[KeyValueCache, ...]]:
        """Return the features of the next T positions, embedded (B, T, E), and all layers' keys and values so far."""
        stream, extended = Stream(features), []
        for layer, cache in zip(self.layers, caches, strict=True):
            stream, cache = layer(stream, cache)
            extended.append(cache)
        return stream.end(self.norm), tuple(extended)
