"""The Transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attent.attention.cache import KeyValueCache
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError
from attent.layers.embeddings import TokenEmbedding, VectorEmbedding
from attent.models import transformer_packing
from attent.models.model import EncoderDecoder, Memory, check_source
from attent.models.settings import TransformerSettings
from attent.models.transformer_layers import Decoder, DecoderLayer, Embedding, Encoder, Past
from attent.ops import packed_linear
from attent.ops.packed_linear import WeightType
from attent.ops.search import PackedDecoder
from attent.ops.transformer import IncrementalState
from attent.types import Features, Lengths, StepFeatures, Tokens


@dataclass(frozen=True)
class TransformerState:
    """Immutable decoder state: keys and values of the target so far and of the memory.

    Args:
        length: the number of target tokens so far, including BOS; the same in every row.
        lengths: the number of real source tokens, (B,).
        written: each layer's keys and values of the target, or a recurrent unit's state; None before the first token.
            Exported graphs contain the names of these fields.
        source: each layer's keys and values of the memory.
    """

    length: int
    lengths: Tensor
    written: tuple[Past | None, ...]
    source: tuple[KeyValueCache, ...]

    def select(self, rows: Tensor) -> TransformerState:
        """Return these rows of the batch, in this order; rows may repeat."""
        source = tuple(cache.select(rows) for cache in self.source)
        return replace(self.reorder(rows), lengths=self.lengths[rows], source=source)

    def reorder(self, rows: Tensor) -> TransformerState:
        """Return the history of these rows like `select`, while every row keeps its own source."""
        return replace(self, written=tuple(None if cache is None else cache.select(rows) for cache in self.written))


class Transformer(EncoderDecoder[TransformerState | IncrementalState]):
    """An encoder-decoder of attention and feed-forward layers.

    Source: Vaswani et al. (2017), Attention Is All You Need, arXiv 1706.03762.

    Args:
        settings: the settings of the model.
        source_size: the size of the source's vocabulary, or of its vectors.
        target_size: the size of the target's vocabulary.

    Raises:
        ArgumentError: share_embeddings is "all" and the vocabularies differ in size.
    """

    def __init__(self, settings: TransformerSettings, source_size: int, target_size: int) -> None:
        super().__init__()
        shared = settings.share_embeddings
        if shared == "all" and source_size != target_size:
            raise ArgumentError(
                f'share_embeddings = "all" needs one vocabulary, got {source_size} source and {target_size} target '
                "tokens"
            )
        target = TokenEmbedding(target_size, settings.width, is_scaled=settings.scale_embeddings)
        if settings.input == "vectors":
            source = VectorEmbedding(source_size, settings.width)
        elif shared == "all":
            source = target
        else:
            source = TokenEmbedding(source_size, settings.width, is_scaled=settings.scale_embeddings)
        self.settings = settings
        self.source_embedding = Embedding(source, settings)
        self.target_embedding = Embedding(target, settings)
        self.encoder = Encoder(settings)
        self.decoder = Decoder(settings)
        self.to_logits = nn.Linear(settings.width, target_size, bias=settings.output_bias)
        if shared == "none":
            nn.init.xavier_uniform_(self.to_logits.weight)
        else:
            self.to_logits.weight = target.weight

    @property
    def batch_invariant(self) -> bool:
        if self.settings.input == "vectors":
            return False
        is_packed = transformer_packing.has_packed_form(self.encoder) and transformer_packing.has_packed_form(
            self.decoder
        )
        return is_packed and packed_linear.is_batch_invariant(self.to_logits)

    @property
    def embeddings(self) -> Mapping[str, TokenEmbedding]:
        embeddings = {"source": self.source_embedding.tokens, "target": self.target_embedding.tokens}
        return {name: part for name, part in embeddings.items() if isinstance(part, TokenEmbedding)}

    def encode(self, source: Tensor, lengths: Lengths) -> Memory:
        """Encode a right-padded source (B, Tk), or (B, Tk, D) of vectors, with real lengths (B,).

        Raises:
            ShapeError: the source has other axes, or there is not one length per row.
        """
        check_source(source, lengths, self.settings.input)
        return Memory(transformer_packing.encode(self.encoder, self.source_embedding, source, lengths), lengths)

    def decode(self, memory: Memory, tokens: Tokens) -> Features:
        # with weights of fewer bits, compute as the search does
        if packed_linear.kind_of(self.decoder) is not WeightType.FLOAT32 and isinstance(
            state := self.start(memory), IncrementalState
        ):
            return transformer_packing.decode_steps(self.decoder, self.target_embedding, state, tokens)
        layers = len(self.decoder.layers)
        return self.decoder(
            self.target_embedding(tokens), (None,) * layers, (memory.features,) * layers, memory.lengths
        )[0]

    @property
    def source_attention_layers(self) -> int:
        # a subclass or a replaced part may attend differently; with weights of fewer bits, maps are still those of the
        # modules, as `watch` returns them
        is_plain = type(self) is Transformer and type(self.decoder) is Decoder and not self.training
        are_plain = is_plain and all(type(layer) is DecoderLayer for layer in self.decoder.layers)
        is_exact = packed_linear.kind_of(self.encoder) is WeightType.FLOAT32
        return len(self.decoder.layers) if are_plain and is_exact else 0

    def source_attention(self, memory: Memory, tokens: Tokens, layer: int) -> AttentionMap:
        return self.decoder.source_attention(self.target_embedding(tokens), memory, layer)

    def start(self, memory: Memory) -> TransformerState | IncrementalState:
        return transformer_packing.start(self.decoder, memory, lambda: self._start(memory))

    def step(
        self, state: TransformerState | IncrementalState, tokens: Tensor
    ) -> tuple[StepFeatures, TransformerState | IncrementalState]:
        if isinstance(state, IncrementalState):
            return transformer_packing.decode_step(self.decoder, self.target_embedding, state, tokens)
        features = self.target_embedding(tokens[:, None], state.length)
        features, written = self.decoder(features, state.written, state.source, state.lengths)
        return features[:, 0], replace(state, length=state.length + 1, written=written)

    def packed_decoders(self, source: Tensor, lengths: Lengths, steps: int) -> Sequence[PackedDecoder]:
        # a subclass may step differently
        if (
            type(self) is not Transformer
            or self.settings.input == "vectors"
            or not packed_linear.is_batch_invariant(self.to_logits)
            or not transformer_packing.has_packed_form(self.encoder)
        ):
            return ()
        state = self.start(self.encode(source, lengths))
        if not isinstance(state, IncrementalState):
            return ()
        packed = transformer_packing.packed_decoder(self.decoder, self.target_embedding, self.to_logits, state, steps)
        return () if packed is None else (packed,)

    def _start(self, memory: Memory) -> TransformerState:
        source = tuple(layer.cross_attention.remember(memory.features) for layer in self.decoder.layers)
        return TransformerState(0, memory.lengths, (None,) * len(source), source)


@torch.no_grad()
def copy_by_depth(model: Transformer, start: Transformer) -> None:
    """Copy the weights of a Transformer of the same sizes, each layer from the one at the same relative depth.

    Layer l of L is copied from layer ⌊(l + ½) L′ / L⌋ of L′, so that some layers are skipped or copied twice.

    Source: Shleifer & Rush (2020), §3.1, arXiv 2010.13002; Gong et al. (2019), ICML (stacking).

    Args:
        model: the model whose weights are replaced.
        start: a Transformer with the same settings, except for encoder_layers, decoder_layers and self_attention.
    """
    for stack, start_stack in ((model.encoder, start.encoder), (model.decoder, start.decoder)):
        for number, layer in enumerate(stack.layers):
            source = start_stack.layers[(2 * number + 1) * len(start_stack.layers) // (2 * len(stack.layers))]
            # the parameters of another kind of self-attention stay random
            layer.load_state_dict(source.state_dict(), strict=False)
    outside = {name: tensor for name, tensor in start.state_dict().items() if ".layers." not in name}
    model.load_state_dict(outside, strict=False)
