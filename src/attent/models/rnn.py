"""The RNN encoder-decoder."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from attent.attention.positions.sinusoidal import Sinusoidal
from attent.errors import refuse
from attent.layers.dropout import Dropout
from attent.layers.embeddings import TokenEmbedding, VectorEmbedding
from attent.layers.recurrent import BidirectionalRecurrent
from attent.layers.sentences import SentenceEncoder, Sentences
from attent.models.model import EncoderDecoder, Memory, check_source
from attent.models.rnn_decoder import DECODERS, RnnState
from attent.models.settings import EncoderSettings, RnnSettings
from attent.models.transformer_layers import Encoder
from attent.types import Features, Lengths, StepFeatures, Tokens


class VectorEncoder(Encoder):
    """A Transformer's encoder of embedded vectors, such as the patches of a picture, with positions.

    Its outputs are the annotations aᵢ of Xu et al. (2015), §3.1.1, arXiv 1502.03044, which are features of a
    convolutional network there.

    Args:
        settings: the settings of the encoder.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__(settings)
        self.positions = Sinusoidal(settings.width)

    def forward(self, features: Features, lengths: Lengths) -> Features:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the annotations (B, T, E) of embedded vectors (B, T, E) with real lengths (B,)."""
        return super().forward(self.positions(features), lengths).features


class RNN(EncoderDecoder[RnnState]):
    """A recurrent decoder, with or without attention, of a bidirectional recurrent encoder or an encoder of vectors.

    See `attent.models.rnn_decoder`. Row t of the map `decoder.cross_attention` belongs to the token that step t
    produces, and so does the single row of `step`.

    Sources: Cho et al. (2014), arXiv 1406.1078; Sutskever et al. (2014), arXiv 1409.3215; Bahdanau et al. (2015),
    arXiv 1409.0473; Luong et al. (2015), arXiv 1508.04025.

    Args:
        settings: the settings of the model.
        source_size: the size of the source's vocabulary, or of its vectors.
        target_size: the size of the target's vocabulary.

    Raises:
        ArgumentError: share_embeddings is "all" and the vocabularies differ in size, attention_hidden is set and the
            score has no hidden width, or sentences is set without sentence_ends.
        ShapeError: the score requires the memory to be as wide as the state.
        UnknownNameError: there is no score or normalizer with that name.
    """

    def __init__(self, settings: RnnSettings, source_size: int, target_size: int) -> None:
        super().__init__()
        shared = settings.share_embeddings
        refuse(
            (
                shared == "all" and source_size != target_size,
                (
                    f'share_embeddings = "all" needs one vocabulary, got {source_size} source and {target_size} target '
                    "tokens"
                ),
            ),
            (
                settings.sentences != "none" and not settings.sentence_ends,
                f'sentences = "{settings.sentences}" needs sentence_ends, the ids of tokens that end a sentence',
            ),
        )
        width = settings.embedding_width
        self.settings = settings
        sizes = settings.cell, width, settings.direction_width, settings.encoder_layers, settings.embedding_dropout
        has_vectors = settings.input == "vectors"
        source = (
            VectorEmbedding(source_size, settings.memory_width) if has_vectors else TokenEmbedding(source_size, width)
        )
        self.source_embedding, target = source, TokenEmbedding(target_size, width)
        # before the encoder, since the order of modules is that of files and of random numbers
        self.target_embedding = source if shared == "all" and isinstance(source, TokenEmbedding) else target
        if has_vectors:
            self.encoder = VectorEncoder(settings.vector_encoder)
        elif settings.sentences == "none":
            self.encoder = BidirectionalRecurrent(*sizes)
        else:
            self.encoder = SentenceEncoder(*sizes, with_words=settings.sentences == "words")
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
        source = {"source": self.source_embedding} if isinstance(self.source_embedding, TokenEmbedding) else {}
        return source | {"target": self.target_embedding}

    def encode(self, source: Tensor, lengths: Lengths) -> Memory:
        """Encode a right-padded source (B, Tk), or (B, Tk, D) of vectors, with real lengths (B,).

        Raises:
            ShapeError: the source has other axes, or there is not one length per row.
        """
        check_source(source, lengths, self.settings.input)
        ends = () if self.settings.sentences == "none" else (self.is_sentence_end(source),)
        features = self.encoder(self.embedding_dropout(self.source_embedding(source)), lengths, *ends)
        return Memory(self.context_dropout(self.norm(features)), lengths)

    def is_sentence_end(self, source: Tokens) -> Tensor:
        """Return whether each token ends a sentence, (B, Tk)."""
        return torch.isin(source, torch.tensor(self.settings.sentence_ends, device=source.device))

    def sentence_spans(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Return the (begin, end) of each sentence that the encoder reads in a source, for `AttentionMap.grouped`."""
        return Sentences.of(self.is_sentence_end(torch.tensor([tokens]))).spans

    def decode(self, memory: Memory, tokens: Tokens) -> Features:
        return self.output_dropout(
            self.decoder.teacher_forced(self.embedding_dropout(self.target_embedding(tokens)), memory)
        )

    def start(self, memory: Memory) -> RnnState:
        return self.decoder.start(memory)

    def step(self, state: RnnState, tokens: Tensor) -> tuple[StepFeatures, RnnState]:
        features, state = self.decoder(self.embedding_dropout(self.target_embedding(tokens[:, None])), state)
        return self.output_dropout(features)[:, 0], state
