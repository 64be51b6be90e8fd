"""The settings of every kind of model, and published sizes and recipes by name."""

import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from attent.errors import check_known, refuse
from attent.layers.feed_forward import Activation
from attent.layers.recurrent import Cell
from attent.layers.residual import Norm

Position = Literal["sinusoidal", "learned", "rotary", "alibi", "relative_bias", "none"]
Input = Literal["tokens", "vectors"]
# Upper limit for the number of tokens that end a sentence.
MOST_ENDS = 2**10
# The score of each recurrent attention's paper.
SCORES = {"bahdanau": "additive", "luong": "general"}
# Sizes only: dropout and shared embeddings depend on the data.
# tiny: Wu et al. (2021), §4.2, arXiv 2105.14462 · base: Vaswani et al. (2017), Table 3, arXiv 1706.03762
TRANSFORMER_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "width": 128, "feed_forward": 256, "heads": 4},
    "small": {"encoder_layers": 3, "decoder_layers": 3, "width": 256, "feed_forward": 1024, "heads": 4},
    "base": {"encoder_layers": 6, "decoder_layers": 6, "width": 512, "feed_forward": 2048, "heads": 8},
}
# lium: Caglayan et al. (2017), "LIUM-CVC Submissions for WMT17 Multimodal Translation Task", arXiv 1707.04481, and its
# published configuration; their decoder has two units a step, this one has one, and their layer normalization is inside
# the units.
RNN_PRESETS: dict[str, dict[str, Any]] = {
    "lium": {
        "cell": "gru",
        "encoder_layers": 1,
        "embedding_width": 128,
        "width": 256,
        "encoder_width": 256,
        "attention": "bahdanau",
        "embedding_dropout": 0.3,
        "context_dropout": 0.5,
        "output_dropout": 0.5,
        "layer_norm": True,
        "share_embeddings": "none",
    },
}


class PresetSettings(BaseModel):
    """Settings that can start from a preset: `preset="small"` sets everything that other keywords do not.

    Args:
        kind: the kind of model; every kind has its own settings.

    Attributes:
        presets: settings by preset name.
        implied: settings that always count as set, so that `model_dump(exclude_unset=True)` includes them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    implied: ClassVar[dict[str, Any]] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = cls.implied | values
        if "preset" not in values:
            return values
        name = str(values["preset"])
        check_known("preset", name, cls.presets)
        return cls.presets[name] | {key: value for key, value in values.items() if key != "preset"}


class StackSettings(PresetSettings):
    """The settings shared by all Transformers: encoder-decoder, encoder-only and decoder-only.

    Args:
        width: the model width E, the paper's d_model.
        feed_forward: the width inside the feed-forward network, the paper's d_ff.
        heads: the number of attention heads H, a divisor of the width; rotary positions need even head widths.
        key_value_heads: the number of heads of keys and values, each shared by a group of query heads (None: H).
            Ainslie et al. (2023), arXiv 2305.13245.
        dropout: the dropout probability of every sub-layer's output and of the embeddings, 0 to 1.
        attention_dropout: the dropout probability of the attention weights, 0 to 1.
        activation: the nonlinearity of the feed-forward network.
        norm: layer normalization after each residual connection ("post", the paper's) or before each sub-layer ("pre").
        score: the name of a score, see attent.attention.scores.
        normalizer: the name of a normalizer, see attent.attention.normalizers.
        position: the kind of positions: added to embeddings (sinusoidal, learned), inside self-attention (rotary,
            alibi, relative_bias), or none.
        maximum_length: the number of learned positions, in tokens.
        output_bias: whether the logits have a bias.
    """

    width: int = Field(default=128, ge=1)
    feed_forward: int = Field(default=256, ge=1)
    heads: int = Field(default=4, ge=1)
    key_value_heads: int | None = Field(default=None, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    activation: Activation = "relu"
    norm: Norm = "post"
    score: str = "scaled_dot"
    normalizer: str = "softmax"
    position: Position = "sinusoidal"
    maximum_length: int = Field(default=1024, ge=1)
    output_bias: bool = False

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        refuse(
            (self.width % self.heads, f"heads must divide width = {self.width}, got {self.heads}"),
            (
                self.key_value_heads is not None and self.heads % self.key_value_heads,
                f"key_value_heads must divide heads = {self.heads}, got {self.key_value_heads}",
            ),
            (
                self.position == "rotary" and self.width // self.heads % 2,
                (
                    f"rotary positions need pairs of features, and heads = {self.heads} have "
                    f"{self.width // self.heads} each: set another number of heads, or another position"
                ),
            ),
        )
        return self


class TransformerSettings(StackSettings):
    """The settings of a Transformer, except its vocabulary sizes.

    `TransformerSettings(preset="small", dropout=0.1)` starts from a published size. The defaults are `tiny`.

    Args:
        encoder_layers: the number of encoder layers.
        decoder_layers: the number of decoder layers.
        share_embeddings: "target" uses the target embedding as the output matrix, "all" also as the source embedding
            (which needs a shared vocabulary; vectors have none), and "none" shares nothing. Press & Wolf (2017), arXiv
            1608.05859.
        scale_embeddings: whether embeddings are multiplied by √width, as in the paper.
        input: the kind of source sequence; see `EncoderSettings`.
        norm_epsilon: the number added to the variance in layer normalization.
        self_attention: what the decoder reads the target so far by: self-attention, or a recurrent unit ("ssru",
            `attent.layers.ssru`).
    """

    presets: ClassVar = TRANSFORMER_PRESETS

    kind: Literal["transformer"] = "transformer"
    encoder_layers: int = Field(default=4, ge=1)
    decoder_layers: int = Field(default=4, ge=1)
    share_embeddings: Literal["none", "target", "all"] = "target"
    scale_embeddings: bool = True
    input: Input = "tokens"
    norm_epsilon: float = Field(default=1e-5, gt=0, lt=1)
    self_attention: Literal["attention", "ssru"] = "attention"

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit newer settings that have their defaults, so that the settings equal those of earlier versions."""
        newer = ("scale_embeddings", True), ("input", "tokens"), ("norm_epsilon", 1e-5), ("self_attention", "attention")
        return {name: value for name, value in serialize(self).items() if (name, value) not in newer}


class EncoderSettings(StackSettings):
    """The settings of an encoder-only Transformer, except the sizes of its input and output.

    `EncoderSettings(preset="small", dropout=0.1)` starts from the encoder of a published size. The defaults are `tiny`.

    Args:
        layers: the number of layers.
        input: the kind of input sequence: token ids, which are embedded ("tokens"), or vectors, which are projected by
            a linear layer ("vectors").
        cls: whether every sequence is preceded by a learned vector, from whose features the output is computed. Devlin
            et al. (2018), §3, arXiv 1810.04805; Dosovitskiy et al. (2020), §3.1, arXiv 2010.11929.
    """

    presets: ClassVar = {
        name: {"layers": sizes["encoder_layers"]}
        | {key: value for key, value in sizes.items() if not key.endswith("_layers")}
        for name, sizes in TRANSFORMER_PRESETS.items()
    }
    implied: ClassVar = {"kind": "encoder"}

    kind: Literal["encoder"] = "encoder"
    layers: int = Field(default=4, ge=1)
    input: Input = "tokens"
    cls: bool = False

    @property
    def encoder_layers(self) -> int:
        """The number of layers, under the name used in a Transformer's settings."""
        return self.layers


class DecoderSettings(StackSettings):
    """The settings of a decoder-only Transformer, a language model, except its vocabulary size.

    `DecoderSettings(preset="small", dropout=0.1)` starts from the decoder of a published size. The defaults are `tiny`.

    Args:
        layers: the number of layers.
        tie_embeddings: whether the embedding is also the output matrix. Press & Wolf (2017), arXiv 1608.05859.
    """

    presets: ClassVar = EncoderSettings.presets
    implied: ClassVar = {"kind": "decoder"}

    kind: Literal["decoder"] = "decoder"
    layers: int = Field(default=4, ge=1)
    tie_embeddings: bool = True


class RnnSettings(PresetSettings):
    """The settings of an RNN encoder-decoder, except its vocabulary sizes.

    `RnnSettings(preset="lium", attention="luong")` starts from a published recipe.

    Args:
        cell: the recurrent unit of encoder and decoder.
        encoder_layers: the number of bidirectional encoder layers; of self-attention layers for vectors.
        decoder_layers: the number of decoder layers.
        embedding_width: features of an embedding, and of the decoder's output.
        width: features of the decoder's state.
        encoder_width: features of one direction of the encoder; by default half of width, so that the memory is as wide
            as the state, as the score "dot" needs.
        attention: the decoder's access to the source: as a single vector ("none", Cho et al. 2014, arXiv 1406.1078, and
            Sutskever et al. 2014, arXiv 1409.3215), by attention from the state before each step ("bahdanau", 2015,
            arXiv 1409.0473), or by attention from the state after it ("luong", 2015, arXiv 1508.04025).
        score: the name of a score, see attent.attention.scores; by default "additive" for bahdanau and "general" for
            luong.
        scaled_score: whether the general score is divided by the square root of the memory's width. Luong's is not, but
            then Adam makes the weights of a wide model almost one-hot in its first updates, from which it recovers only
            slowly (docs/compare.md).
        attention_hidden: features inside an additive or concat score; by default the memory's width.
        normalizer: the name of a normalizer, see attent.attention.normalizers.
        local: the range of luong's attention: a window around the step's own position ("m") or a predicted one ("p"),
            or the whole source ("none"); their §3.2.
        local_window: the window's half-width D, in tokens.
        token_in_query: whether bahdanau's query includes the token read at the step, as in a conditional GRU (Sennrich
            et al. 2017, arXiv 1703.04357); here its embedding passes through a linear layer.
        input_feeding: whether luong's attentional vector is fed into the next step (their §3.3).
        context_every_step: whether, without attention, the source's vector enters every step (Cho) or only the first
            state (Sutskever).
        sentences: whether a second encoder reads the vectors of the source's sentences ("vectors", "words") or the
            source is one sequence of words ("none"), see `attent.layers.sentences`.
        sentence_ends: the ids of the source tokens that end a sentence; by default `attent train` takes those of
            periods, question marks and exclamation marks from the source tokenizer.
        embedding_dropout: the dropout probability of the embeddings and between encoder layers, 0 to 1.
        context_dropout: the dropout probability of the memory's features, 0 to 1.
        output_dropout: the dropout probability of the decoder's output, 0 to 1.
        layer_norm: whether layer normalization is applied to the memory and to the decoder's output before its tanh.
        share_embeddings: see `TransformerSettings`.
        output_bias: whether the logits have a bias.
        input: the kind of source sequence: token ids, read by a recurrent encoder, or vectors, such as the patches of a
            picture, which are projected by a linear layer and read by a Transformer's encoder.
    """

    presets: ClassVar = RNN_PRESETS
    implied: ClassVar = {"kind": "rnn"}

    kind: Literal["rnn"] = "rnn"
    cell: Cell = "gru"
    encoder_layers: int = Field(default=1, ge=1)
    decoder_layers: int = Field(default=1, ge=1)
    embedding_width: int = Field(default=128, ge=1)
    width: int = Field(default=256, ge=1)
    encoder_width: int | None = Field(default=None, ge=1)
    attention: Literal["none", "bahdanau", "luong"] = "bahdanau"
    score: str | None = None
    scaled_score: bool = False
    attention_hidden: int | None = Field(default=None, ge=1)
    normalizer: str = "softmax"
    local: Literal["none", "m", "p"] = "none"
    local_window: int = Field(default=10, ge=1)
    token_in_query: bool = False
    input_feeding: bool = True
    context_every_step: bool = True
    sentences: Literal["none", "vectors", "words"] = "none"
    sentence_ends: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(), max_length=MOST_ENDS)
    embedding_dropout: float = Field(default=0.0, ge=0, lt=1)
    context_dropout: float = Field(default=0.0, ge=0, lt=1)
    output_dropout: float = Field(default=0.0, ge=0, lt=1)
    layer_norm: bool = False
    share_embeddings: Literal["none", "target", "all"] = "target"
    output_bias: bool = True
    input: Input = "tokens"

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit newer settings that have their defaults, so that the settings equal those of earlier versions."""
        newer = (
            ("scaled_score", False),
            ("input", "tokens"),
            ("sentences", "none"),
            ("sentence_ends", ()),
            ("sentence_ends", []),
        )
        return {name: value for name, value in serialize(self).items() if (name, value) not in newer}

    @property
    def direction_width(self) -> int:
        """Features of one direction of the encoder."""
        return self.width // 2 if self.encoder_width is None else self.encoder_width

    @property
    def memory_width(self) -> int:
        """Features of the memory, which concatenates both directions, and with "words" a word's and its sentence's."""
        return (4 if self.sentences == "words" else 2) * self.direction_width

    @property
    def vector_encoder(self) -> EncoderSettings:
        """The settings of the encoder of vectors."""
        return EncoderSettings(
            layers=self.encoder_layers,
            width=self.memory_width,
            feed_forward=2 * self.memory_width,
            # four, or as many of them as the width allows
            heads=math.gcd(4, self.memory_width),
            dropout=self.embedding_dropout,
            norm="pre",
        )

    @property
    def score_name(self) -> str:
        """The name of the score."""
        return self.score or SCORES[self.attention]

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        refuse(
            (
                self.encoder_width is None and self.width % 2,
                f"width must be even unless encoder_width is given, got {self.width}",
            ),
            (
                self.attention == "none" and (self.score is not None or self.attention_hidden is not None),
                'score and attention_hidden need an attention, got attention = "none"',
            ),
            (
                self.scaled_score and (self.attention == "none" or self.score_name != "general"),
                "scaled_score needs an attention with the score general",
            ),
            (
                self.local != "none" and self.attention != "luong",
                f'local needs attention = "luong", got "{self.attention}"',
            ),
            (
                self.token_in_query and self.attention != "bahdanau",
                f'token_in_query needs attention = "bahdanau", got "{self.attention}"',
            ),
            (
                self.sentence_ends if self.sentences == "none" else self.input == "vectors",
                (
                    'sentence_ends needs sentences = "vectors" or "words", which needs input = "tokens", '
                    f'got "{self.sentences}" and "{self.input}"'
                ),
            ),
        )
        return self


SETTINGS: dict[str, type[TransformerSettings] | type[RnnSettings] | type[EncoderSettings] | type[DecoderSettings]] = {
    "transformer": TransformerSettings,
    "rnn": RnnSettings,
    "encoder": EncoderSettings,
    "decoder": DecoderSettings,
}


def kind_of(values: Any) -> str:
    """Return the kind of model in a table of settings; "transformer" by default.

    Raises:
        UnknownNameError: there is no such kind.
    """
    kind = str(values.get("kind", "transformer") if isinstance(values, dict) else "transformer")
    check_known("kind", kind, SETTINGS)
    return kind


def _validate(values: Any) -> Any:
    return values if isinstance(values, BaseModel) else SETTINGS[kind_of(values)].model_validate(values)


ModelSettings = Annotated[
    TransformerSettings | RnnSettings | EncoderSettings | DecoderSettings, BeforeValidator(_validate)
]


def keys_of(values: Any) -> dict[str, Any]:
    """Return the keys allowed in a table of settings of this kind, and their types."""
    return {name: field.annotation for name, field in SETTINGS[kind_of(values)].model_fields.items()} | {"preset": str}
