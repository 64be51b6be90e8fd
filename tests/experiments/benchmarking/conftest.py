"""A run folder whose model nobody has trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from attent.data.tokenizer import CharTokenizer
from attent.models.settings import build
from attent.models.transformer_settings import TransformerSettings
from attent.runs.folder import RunConfig, RunWriter


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=12, heads=2)
    tokenizers = CharTokenizer("abcdef"), CharTokenizer("012345")
    folder = tmp_path_factory.mktemp("runs") / "made"
    with RunWriter(folder) as run:
        config = RunConfig(model=settings, tokenizers={"source": "char", "target": "char"})
        run.finish(config, build(settings, *(tokenizer.size for tokenizer in tokenizers)), *tokenizers)
    return folder
