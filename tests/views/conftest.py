"""An untrained translator, to test views on."""

from __future__ import annotations

import pytest
import torch

from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer


def untrained(**settings: object) -> Translator:
    torch.manual_seed(0)
    source, target = CharTokenizer("abcde "), CharTokenizer("xyz")
    small = {"encoder_layers": 2, "decoder_layers": 2, "width": 12, "feed_forward": 16, "heads": 3, "dropout": 0.0}
    sizes = TransformerSettings.model_validate(small | settings)
    return Translator(Transformer(sizes, source.size, target.size), source, target)


@pytest.fixture
def translator() -> Translator:
    return untrained()


@pytest.fixture(name="untrained")
def make_untrained():
    """A function that builds a translator with other settings."""
    return untrained
