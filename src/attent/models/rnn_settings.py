"""The settings of an RNN encoder-decoder, and recipes that have been published, by name."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from attent.errors import UnknownNameError
from attent.layers.recurrent import Cell
from attent.registry import with_keys

# What each kind of attention scores with unless another score is named.
SCORES = {"bahdanau": "additive", "luong": "general"}


class RnnSettings(BaseModel):
    """Everything that decides an RNN encoder-decoder but its vocabularies.

    `RnnSettings(preset="lium", attention="luong")` starts from a published recipe.

    Args:
        cell: the recurrent unit, in the encoder and in the decoder.
        encoder_layers: layers that read the source, each in both directions.
        decoder_layers: layers that write the target.
        embedding_width: features of a token's embedding, and of what the logits are computed from.
        width: features of the decoder's state.
        encoder_width: features of one direction of the encoder; half of width unless given, so that the memory is as wide as
            the state, which the score "dot" needs.
        attention: how the decoder sees the source: as one vector ("none", Cho et al. 2014, arXiv 1406.1078, and Sutskever et al.
            2014, arXiv 1409.3215), from the state before each step ("bahdanau", 2015, arXiv 1409.0473), or from the state
            behind it ("luong", 2015, arXiv 1508.04025).
        score: the name of a score, as in attent.attention.scores; "additive" for bahdanau and "general" for luong unless given.
        attention_hidden: features inside an additive or concat score; as many as the memory has unless given.
        normaliser: the name of a normalizer, as in attent.attention.normalizers.
        local: whether luong's attention sees a window of the source alone, about the step's own place ("m") or one that it
            predicts ("p"), or all of it ("none"); their §3.2.
        local_window: how far the window reaches to either side, their D, in tokens.
        token_in_query: whether bahdanau's attention is asked by the token given at the step too, which the state before it has
            not read, so that it knows what was written last as that of a conditional GRU does (Sennrich et al. 2017,
            arXiv 1703.04357); here by a linear layer on its embedding.
        input_feeding: whether luong's attentional vector enters the next step (their §3.3).
        context_every_step: whether, without attention, the source's vector enters every step (Cho) or the first state
            alone (Sutskever).
        embedding_dropout: share dropped of the embeddings, 0 to 1; with several encoder layers also between these.
        context_dropout: share dropped of the memory's features, 0 to 1.
        output_dropout: share dropped of what the logits are computed from, 0 to 1.
        layer_norm: whether the memory, and the decoder's output before its tanh, are layer-normalised.
        share_embeddings: whether the output matrix is the target's embedding ("target", the default), the source's too
            ("all", needs one vocabulary), or its own ("none"). Press & Wolf (2017), arXiv 1608.05859.
        output_bias: whether a bias is added to the logits.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["rnn"] = "rnn"
    cell: Cell = "gru"
    encoder_layers: int = Field(default=1, ge=1)
    decoder_layers: int = Field(default=1, ge=1)
    embedding_width: int = Field(default=128, ge=1)
    width: int = Field(default=256, ge=1)
    encoder_width: int | None = Field(default=None, ge=1)
    attention: Literal["none", "bahdanau", "luong"] = "bahdanau"
    score: str | None = None
    attention_hidden: int | None = Field(default=None, ge=1)
    normaliser: str = "softmax"
    local: Literal["none", "m", "p"] = "none"
    local_window: int = Field(default=10, ge=1)
    token_in_query: bool = False
    input_feeding: bool = True
    context_every_step: bool = True
    embedding_dropout: float = Field(default=0.0, ge=0, lt=1)
    context_dropout: float = Field(default=0.0, ge=0, lt=1)
    output_dropout: float = Field(default=0.0, ge=0, lt=1)
    layer_norm: bool = False
    share_embeddings: Literal["none", "target", "all"] = "target"
    output_bias: bool = True

    @property
    def direction_width(self) -> int:
        """Features of one direction of the encoder."""
        return self.width // 2 if self.encoder_width is None else self.encoder_width

    @property
    def memory_width(self) -> int:
        """Features of the memory: both directions."""
        return 2 * self.direction_width

    @property
    def score_name(self) -> str:
        """The score, by name."""
        return self.score or SCORES[self.attention]

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        # Said even where it is not, so that a table of what was set still names its kind.
        values = {"kind": "rnn"} | with_keys(values, {"normalizer": "normaliser"})
        if "preset" not in values:
            return values
        name = values["preset"]
        if not isinstance(name, str) or name not in PRESETS:
            raise UnknownNameError("preset", str(name), PRESETS)
        return PRESETS[name] | {key: value for key, value in values.items() if key != "preset"}

    @model_validator(mode="after")
    def _fit_together(self) -> RnnSettings:
        if self.encoder_width is None and self.width % 2:
            raise ValueError(f"width must be even unless encoder_width is given, got {self.width}")
        if self.attention == "none" and (self.score is not None or self.attention_hidden is not None):
            raise ValueError('score and attention_hidden need an attention, got attention = "none"')
        if self.local != "none" and self.attention != "luong":
            raise ValueError(f'local needs attention = "luong", got "{self.attention}"')
        if self.token_in_query and self.attention != "bahdanau":
            raise ValueError(f'token_in_query needs attention = "bahdanau", got "{self.attention}"')
        return self


# lium: Caglayan et al. (2017), "LIUM-CVC Submissions for WMT17 Multimodal Translation Task", arXiv 1707.04481, and the
# configuration published with it; their decoder has two units a step, ours one, and their normalisation is inside the units
PRESETS: dict[str, dict[str, Any]] = {
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
