"""The settings of any model, told apart by `kind`, and the model they describe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator

from attent.errors import UnknownNameError
from attent.models.encoder import EncoderModel
from attent.models.encoder_settings import EncoderSettings
from attent.models.rnn import RNN
from attent.models.rnn_settings import RnnSettings
from attent.models.transformer import Transformer
from attent.models.transformer_settings import TransformerSettings


class Kind(NamedTuple):
    """What belongs to one kind of model."""

    settings: type[TransformerSettings | RnnSettings | EncoderSettings]
    model: Callable[[Any, int, int], Any]


KINDS = {
    "transformer": Kind(TransformerSettings, Transformer),
    "rnn": Kind(RnnSettings, RNN),
    "encoder": Kind(EncoderSettings, EncoderModel),
}
DEFAULT = "transformer"


def kind_of(values: Any) -> str:
    """The kind that a table of settings names; a Transformer where it names none.

    Raises:
        UnknownNameError: there is no such kind.
    """
    kind = values.get("kind", DEFAULT) if isinstance(values, dict) else DEFAULT
    if not isinstance(kind, str) or kind not in KINDS:
        raise UnknownNameError("kind", str(kind), KINDS)
    return kind


def _of_its_kind(values: Any) -> Any:
    return values if isinstance(values, BaseModel) else KINDS[kind_of(values)].settings.model_validate(values)


ModelSettings = Annotated[TransformerSettings | RnnSettings | EncoderSettings, BeforeValidator(_of_its_kind)]


def keys_of(values: Any) -> dict[str, Any]:
    """The keys that a table of settings of this kind may have, and their types."""
    settings: type[BaseModel] = KINDS[kind_of(values)].settings
    return {name: field.annotation for name, field in settings.model_fields.items()} | {"preset": str}


def build(settings: TransformerSettings | RnnSettings | EncoderSettings, inputs: int, outputs: int) -> Any:
    """The model that these settings describe: an `EncoderDecoder`, or for an encoder alone an `EncoderModel`.

    Args:
        settings: of any kind.
        inputs: how many tokens there are to read, or how many numbers each vector has.
        outputs: how many tokens or classes there are to write.
    """
    return KINDS[settings.kind].model(settings, inputs, outputs)
