"""The settings of a Transformer, and the sizes that papers have published, by name."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from attent.errors import UnknownNameError
from attent.layers.feed_forward import Activation
from attent.layers.residual import Norm
from attent.registry import with_keys

Position = Literal["sinusoidal", "learned", "rotary", "alibi", "relative_bias", "none"]


class StackSettings(BaseModel):
    """What decides the layers of any Transformer, be it of an encoder and a decoder or of an encoder alone.

    Args:
        width: the model width E, the paper's d_model.
        feed_forward: the width inside the feed-forward network, the paper's d_ff.
        heads: attention heads H; divides the width, into even parts where positions are rotary.
        key_value_heads: heads of keys and values, each shared by H / this many query heads (None: as many as heads).
            Ainslie et al. (2023), arXiv 2305.13245.
        dropout: share dropped of every sub-layer's output and of the embeddings, 0 to 1.
        attention_dropout: share dropped of the attention weights, 0 to 1.
        activation: the nonlinearity of the feed-forward network.
        norm: layer normalisation after each residual connection ("post", the paper's) or before each sub-layer ("pre").
        score: the name of a score, as in attent.attention.scores.
        normaliser: the name of a normalizer, as in attent.attention.normalizers.
        position: how positions enter: added to embeddings (sinusoidal, learned), inside self-attention (rotary, alibi,
            relative_bias), or not at all (none).
        maximum_length: the longest sequence, in tokens, that learned positions can number.
        output_bias: whether a bias is added to the logits.

    Attributes:
        presets: settings by the name that `preset` gives them.
        said: settings that count as set, so that a table of what was set names them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    said: ClassVar[dict[str, Any]] = {}

    width: int = Field(default=128, ge=1)
    feed_forward: int = Field(default=256, ge=1)
    heads: int = Field(default=4, ge=1)
    key_value_heads: int | None = Field(default=None, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    activation: Activation = "relu"
    norm: Norm = "post"
    score: str = "scaled_dot"
    normaliser: str = "softmax"
    position: Position = "sinusoidal"
    maximum_length: int = Field(default=1024, ge=1)
    output_bias: bool = False

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = cls.said | with_keys(values, {"normalizer": "normaliser"})
        if "preset" not in values:
            return values
        name = values["preset"]
        if not isinstance(name, str) or name not in cls.presets:
            raise UnknownNameError("preset", str(name), cls.presets)
        return cls.presets[name] | {key: value for key, value in values.items() if key != "preset"}

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"heads must divide width = {self.width}, got {self.heads}")
        if self.key_value_heads is not None and self.heads % self.key_value_heads:
            raise ValueError(f"key_value_heads must divide heads = {self.heads}, got {self.key_value_heads}")
        if self.position == "rotary" and (own := self.width // self.heads) % 2:
            raise ValueError(f"rotary positions turn pairs of features, and heads = {self.heads} have {own} each: {self._even()}")
        return self

    def _even(self) -> str:
        """What to set instead of heads of an odd width: as many heads as nearly as can be."""
        shared = self.key_value_heads or 1
        counts = [heads for heads in range(1, self.width + 1) if not (self.width % (2 * heads) or heads % shared)]
        if not counts:
            return "set another width, or another position"
        return f"set heads = {min(counts, key=lambda heads: (abs(heads - self.heads), -heads))}"


# Sizes only: dropout and shared embeddings depend on the data.
# tiny: Wu et al. (2021), §4.2, arXiv 2105.14462 · base: Vaswani et al. (2017), Table 3, arXiv 1706.03762
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "width": 128, "feed_forward": 256, "heads": 4},
    "small": {"encoder_layers": 3, "decoder_layers": 3, "width": 256, "feed_forward": 1024, "heads": 4},
    "base": {"encoder_layers": 6, "decoder_layers": 6, "width": 512, "feed_forward": 2048, "heads": 8},
}


class TransformerSettings(StackSettings):
    """Everything that decides a Transformer but its vocabularies.

    `TransformerSettings(preset="small", dropout=0.1)` starts from a published size. The defaults are `tiny`.

    Args:
        encoder_layers: layers that read the source.
        decoder_layers: layers that write the target.
        share_embeddings: whether the output matrix is the target's embedding ("target", the default), the source's
            too ("all", needs one vocabulary), or its own ("none"). Press & Wolf (2017), arXiv 1608.05859.
    """

    presets: ClassVar = PRESETS

    kind: Literal["transformer"] = "transformer"
    encoder_layers: int = Field(default=4, ge=1)
    decoder_layers: int = Field(default=4, ge=1)
    share_embeddings: Literal["none", "target", "all"] = "target"
