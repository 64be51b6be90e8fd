"""The settings of an encoder alone."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from attent.models.transformer_settings import PRESETS, StackSettings


class EncoderSettings(StackSettings):
    """Everything that decides an encoder but how many kinds of input and of output there are.

    `EncoderSettings(preset="small", dropout=0.1)` starts from the encoder of a published size. The defaults are `tiny`.

    Args:
        layers: how many there are.
        input: what a sequence is made of: whole numbers, each with an embedding of its own ("tokens"), or vectors of numbers,
            which a linear layer projects ("vectors").
        cls: whether a learnt vector stands in front of every sequence, from which the whole of it is told; the output is then of
            that place alone. Devlin et al. (2018), §3, arXiv 1810.04805; Dosovitskiy et al. (2020), §3.1, arXiv 2010.11929.
    """

    presets: ClassVar = {
        name: {"layers": sizes["encoder_layers"]} | {key: value for key, value in sizes.items() if not key.endswith("_layers")}
        for name, sizes in PRESETS.items()
    }
    said: ClassVar = {"kind": "encoder"}

    kind: Literal["encoder"] = "encoder"
    layers: int = Field(default=4, ge=1)
    input: Literal["tokens", "vectors"] = "tokens"
    cls: bool = False

    @property
    def encoder_layers(self) -> int:
        """As the settings of a Transformer call them."""
        return self.layers
