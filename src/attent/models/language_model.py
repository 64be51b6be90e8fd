"""A decoder-only Transformer: a language model, which predicts each token of a text from the previous ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor, nn

from attent.attention.cache import KeyValueCache
from attent.errors import ShapeError
from attent.layers.embeddings import TokenEmbedding
from attent.models import transformer_packing
from attent.models.model import Model
from attent.models.settings import DecoderSettings
from attent.models.transformer_layers import CausalDecoder, Embedding
from attent.ops import packed_linear
from attent.ops.packed_linear import WeightType
from attent.ops.transformer import IncrementalState
from attent.types import Features, StepFeatures, Tokens


@dataclass(frozen=True)
class LanguageModelState:
    """Immutable state of a language model: keys and values of the tokens so far.

    Args:
        length: the number of tokens so far, including BOS; the same in every row.
        caches: the cache of each layer; None before the first token.
    """

    length: int
    caches: tuple[KeyValueCache | None, ...]

    def select(self, rows: Tensor) -> LanguageModelState:
        """Return these rows of the batch, in this order; rows may repeat."""
        return replace(self, caches=tuple(None if cache is None else cache.select(rows) for cache in self.caches))


class LanguageModel(Model):
    """A decoder-only Transformer.

        H = Decoder([x₁; …; x_T] + positions), each attending to itself and those before;  logits of x_{t+1} = W h_t

    `forward` reads all tokens together, `start` and `step` one at a time; both compute the same features.

    Source: Liu et al. (2018), §4.2.2, arXiv 1801.10198; Radford et al. (2018), "Improving Language Understanding by
    Generative Pre-Training", §3.1.

    Args:
        settings: the settings of the model.
        size: the size of the vocabulary.
        outputs: the size of the output vocabulary, equal to `size`.
    """

    def __init__(self, settings: DecoderSettings, size: int, outputs: int) -> None:
        super().__init__()
        if size != outputs:
            raise ShapeError(f"a language model reads and writes one vocabulary, got {size} and {outputs} tokens")
        self.settings = settings
        self.embedding = Embedding(TokenEmbedding(size, settings.width), settings)
        self.decoder = CausalDecoder(settings)
        self.to_logits = nn.Linear(settings.width, size, bias=settings.output_bias)
        if settings.tie_embeddings:
            self.to_logits.weight = self.embedding.tokens.weight
        else:
            nn.init.xavier_uniform_(self.to_logits.weight)

    @property
    def batch_invariant(self) -> bool:
        """True if, in the current mode, a row's numbers do not depend on the number of rows in the batch."""
        return transformer_packing.has_packed_form(self.decoder) and packed_linear.is_batch_invariant(self.to_logits)

    @property
    def embeddings(self) -> Mapping[str, TokenEmbedding]:
        return {"text": self.embedding.tokens}

    def forward(self, tokens: Tokens) -> Features:
        """Return the features (B, T, E) of right-padded tokens (B, T); those at t predict token t + 1.

        Raises:
            ShapeError: the tokens do not have these axes.
        """
        if tokens.dim() != 2:
            raise ShapeError(f"tokens must be (B, T), got {tuple(tokens.shape)}")
        # with weights of fewer bits, compute as generation does
        if packed_linear.kind_of(self.decoder) is not WeightType.FLOAT32 and isinstance(
            state := self.start(len(tokens)), IncrementalState
        ):
            return transformer_packing.decode_steps(self.decoder, self.embedding, state, tokens)
        return self.decoder(self.embedding(tokens), (None,) * len(self.decoder.layers))[0]

    def start(self, rows: int) -> LanguageModelState | IncrementalState:
        """Return the state of `rows` rows before their first token."""
        state = LanguageModelState(0, (None,) * len(self.decoder.layers))
        return transformer_packing.start_without_memory(self.decoder, rows, lambda: state)

    def step(
        self, state: LanguageModelState | IncrementalState, tokens: Tensor
    ) -> tuple[StepFeatures, LanguageModelState | IncrementalState]:
        """Return the features (B, E) of one more token (B,), and the state that includes it."""
        if isinstance(state, IncrementalState):
            return transformer_packing.decode_step(self.decoder, self.embedding, state, tokens)
        features, caches = self.decoder(self.embedding(tokens[:, None], state.length), state.caches)
        return features[:, 0], LanguageModelState(state.length + 1, caches)

    def output(self, features: Tensor) -> Tensor:
        """Return the logits (…, V) of the next token from features (…, E)."""
        return packed_linear.linear(self.to_logits, features)
