"""The RNN encoder-decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from attent.errors import ArgumentError, ShapeError
from attent.layers.dropout import Dropout
from attent.layers.embeddings import TokenEmbedding
from attent.layers.recurrent import BidirectionalRecurrent
from attent.models.model import EncoderDecoder, Memory
from attent.models.rnn_decoder import DECODERS, RnnState
from attent.models.settings import RnnSettings
from attent.types import Features, Lengths, StepFeatures, Tokens


class RNN(EncoderDecoder[RnnState]):
    """A bidirectional recurrent encoder and a recurrent decoder, with or without attention.

    See `attent.models.rnn_decoder`. Row t of the map `decoder.cross_attention` belongs to the token that step t
    produces, and so does the single row of `step`.

    Sources: Cho et al. (2014), arXiv 1406.1078; Sutskever et al. (2014), arXiv 1409.3215; Bahdanau et al. (2015),
    arXiv 1409.0473; Luong et al. (2015), arXiv 1508.04025.

    Args:
        settings: the settings of the model.
        source_size: the size of the source's vocabulary.
        target_size: the size of the target's vocabulary.

    Raises:
        ArgumentError: share_embeddings is "all" and the vocabularies differ in size, or attention_hidden is set and the
            score has no hidden width.
        ShapeError: the score requires the memory to be as wide as the state.
        UnknownNameError: there is no score or normalizer with that name.
    """

    def __init__(self, settings: RnnSettings, source_size: int, target_size: int) -> None:
        super().__init__()
        shared = settings.share_embeddings
        if shared == "all" and source_size != target_size:
            raise ArgumentError(
                f'share_embeddings = "all" needs one vocabulary, got {source_size} source and {target_size} target '
                "tokens"
            )
        width = settings.embedding_width
        self.settings = settings
        self.source_embedding = TokenEmbedding(source_size, width)
        self.target_embedding = self.source_embedding if shared == "all" else TokenEmbedding(target_size, width)
        self.encoder = BidirectionalRecurrent(
            settings.cell, width, settings.direction_width, settings.encoder_layers, settings.embedding_dropout
        )
        self.norm = nn.LayerNorm(settings.memory_width) if settings.layer_norm else nn.Identity()
        self.decoder = DECODERS[settings.attention](settings)
        self.embedding_dropout = Dropout(settings.embedding_dropout)
        self.context_dropout = Dropout(settings.context_dropout)
        self.output_dropout = Dropout(settings.output_dropout)
        self.to_logits = nn.Linear(width, target_size, bias=settings.output_bias)
        if shared == "none":
            nn.init.xavier_uniform_(self.to_logits.weight)
        else:
            self.to_logits.weight = self.target_embedding.weight

    @property
    def embeddings(self) -> Mapping[str, TokenEmbedding]:
        return {"source": self.source_embedding, "target": self.target_embedding}

    @property
    def units(self) -> Sequence[nn.Module]:
        """The encoder only, since the decoder's steps use its layers' weights outside their forward."""
        return (self.encoder,)

    def encode(self, source: Tokens, lengths: Lengths) -> Memory:
        """Encode a right-padded source (B, Tk) with real lengths (B,).

        Raises:
            ShapeError: there is not one length per row.
        """
        if source.dim() != 2 or lengths.shape != source.shape[:1]:
            raise ShapeError(
                f"source must be (B, Tk) and lengths (B,), got {tuple(source.shape)} and {tuple(lengths.shape)}"
            )
        features = self.encoder(self.embedding_dropout(self.source_embedding(source)), lengths)
        return Memory(self.context_dropout(self.norm(features)), lengths)

    def decode(self, memory: Memory, tokens: Tokens) -> Features:
        return self.output_dropout(
            self.decoder.teacher_forced(self.embedding_dropout(self.target_embedding(tokens)), memory)
        )

    def start(self, memory: Memory) -> RnnState:
        return self.decoder.start(memory)

    def step(self, state: RnnState, tokens: Tensor) -> tuple[StepFeatures, RnnState]:
        features, state = self.decoder(self.embedding_dropout(self.target_embedding(tokens[:, None])), state)
        return self.output_dropout(features)[:, 0], state
