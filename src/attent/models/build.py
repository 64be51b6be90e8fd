"""Construction of a model from its settings."""

from collections.abc import Callable
from typing import Any

from attent.models.encoder import EncoderModel
from attent.models.language_model import LanguageModel
from attent.models.rnn import RNN
from attent.models.settings import ModelSettings
from attent.models.transformer import Transformer

MODELS: dict[str, Callable[[Any, int, int], Any]] = {
    "transformer": Transformer,
    "rnn": RNN,
    "encoder": EncoderModel,
    "decoder": LanguageModel,
}


def build(settings: ModelSettings, inputs: int, outputs: int) -> Any:
    """Build an `EncoderDecoder`, `EncoderModel` or `LanguageModel` from settings.

    `EncoderSettings` give an `EncoderModel`, and `DecoderSettings` a `LanguageModel`.

    Args:
        settings: the settings of any kind of model.
        inputs: the size of the source vocabulary, or of the input vectors.
        outputs: the size of the target vocabulary, or the number of classes.
    """
    return MODELS[settings.kind](settings, inputs, outputs)
