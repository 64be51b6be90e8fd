"""The Transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from attent.attention.cache import KeyValueCache
from attent.errors import ArgumentError, ShapeError
from attent.layers.embeddings import TokenEmbedding
from attent.models import transformer_packing as compiled
from attent.models import transformer_steps
from attent.models.encoder_decoder import EncoderDecoder, Memory
from attent.models.transformer_layers import Decoder, Embedding, Encoder
from attent.models.transformer_packing import Start
from attent.models.transformer_settings import TransformerSettings
from attent.models.transformer_steps import Standing
from attent.ops import packed_linear
from attent.types import Features, Lengths, Tokens


@dataclass(frozen=True)
class TransformerState:
    """Where the decoder stands: what it has written and what it reads, as keys and values.

    Args:
        length: tokens written so far, BOS included; the same in every row.
        lengths: how many of the source's tokens are real, (B,).
        written: each layer's keys and values of its own past; None before the first token.
        source: each layer's keys and values of the memory.
    """

    length: int
    lengths: Tensor
    written: tuple[KeyValueCache | None, ...]
    source: tuple[KeyValueCache, ...]

    def select(self, rows: Tensor) -> TransformerState:
        """These rows of the batch, in this order; a row may be named twice."""
        return TransformerState(
            self.length,
            self.lengths[rows],
            self._written(rows),
            tuple(cache.select(rows) for cache in self.source),
        )

    def reorder(self, rows: Tensor) -> TransformerState:
        """`select` where each row takes what a row with the same source has written."""
        return TransformerState(self.length, self.lengths, self._written(rows), self.source)

    def _written(self, rows: Tensor) -> tuple[KeyValueCache | None, ...]:
        return tuple(None if cache is None else cache.select(rows) for cache in self.written)


class Transformer(EncoderDecoder[TransformerState | Standing]):
    """An encoder-decoder built of attention alone; it keeps the contract of `attent.models.encoder_decoder`.

    Source: Vaswani et al. (2017), Attention Is All You Need, arXiv 1706.03762.

    Args:
        settings: everything but the vocabularies.
        source_size: tokens in the source's vocabulary.
        target_size: tokens in the target's vocabulary.

    Raises:
        ArgumentError: share_embeddings is "all" and the vocabularies differ in size.
    """

    def __init__(self, settings: TransformerSettings, source_size: int, target_size: int) -> None:
        super().__init__()
        shared = settings.share_embeddings
        if shared == "all" and source_size != target_size:
            raise ArgumentError(f'share_embeddings = "all" needs one vocabulary, got {source_size} source and {target_size} target tokens')
        target = TokenEmbedding(target_size, settings.width)
        source = target if shared == "all" else TokenEmbedding(source_size, settings.width)
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
    def longest(self) -> int | None:
        """As many tokens as learned positions can number, and the score can tell apart; None where neither has a limit."""
        return self.limit(self.settings.maximum_length if self.settings.position == "learned" else None)

    @property
    def rowwise(self) -> bool:
        """Whether both stacks and the logits are the extension's."""
        return all(map(compiled.serves, (self.encoder, self.decoder))) and packed_linear.possible(self.to_logits.weight)

    def encode(self, source: Tokens, lengths: Lengths) -> Memory:
        """The memory of a right-padded source (B, Tk) of which lengths (B,) are real.

        Raises:
            ShapeError: lengths are not one a row.
        """
        if source.dim() != 2 or lengths.shape != source.shape[:1]:
            raise ShapeError(f"source must be (B, Tk) and lengths (B,), got {tuple(source.shape)} and {tuple(lengths.shape)}")
        if source.numel() and compiled.serves(self.encoder):
            begun = Start(self.source_embedding.tokens, self.source_embedding.added(0, source.shape[1]))
            return Memory(compiled.encode(self.encoder, begun, source, lengths), lengths)
        return self.encoder(self.source_embedding(source), lengths)

    @property
    def embeddings(self) -> Mapping[str, TokenEmbedding]:
        return {"source": self.source_embedding.tokens, "target": self.target_embedding.tokens}

    @property
    def units(self) -> Sequence[nn.Module]:
        return *self.encoder.layers, *self.decoder.layers

    def decode(self, memory: Memory, tokens: Tokens) -> Features:
        nothing = (None,) * len(self.decoder.layers)
        return self.decoder(self.target_embedding(tokens), nothing, (memory.features,) * len(nothing), memory.lengths)[0]

    def start(self, memory: Memory) -> TransformerState | Standing:
        """The state before the first token: every layer's keys and values of the memory."""
        if transformer_steps.serves(self.decoder, memory):
            return transformer_steps.start(self.decoder, memory)
        return self._start(memory)

    def step(self, state: TransformerState | Standing, tokens: Tensor) -> tuple[Tensor, TransformerState | Standing]:
        if isinstance(state, Standing):
            return transformer_steps.step(self.decoder, self.target_embedding, state, tokens)
        features, state = self._continue(state, tokens[:, None])
        return features[:, 0], state

    def _start(self, memory: Memory) -> TransformerState:
        source = self.decoder.remember(memory)
        return TransformerState(0, memory.lengths, (None,) * len(source), source)

    def _continue(self, state: TransformerState, tokens: Tokens) -> tuple[Features, TransformerState]:
        features = self.target_embedding(tokens, state.length)
        features, written = self.decoder(features, state.written, state.source, state.lengths)
        return features, TransformerState(state.length + tokens.shape[1], state.lengths, written, state.source)
