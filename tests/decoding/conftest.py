"""Models that have hardly learnt anything, and the folders that they are in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from attent.data.tokenizers import learn
from attent.decoding.filler import Filler
from attent.models.encoder import EncoderModel
from attent.models.encoder_settings import EncoderSettings
from attent.runs.folder import RunConfig, RunWriter

TEXT = ["the dog was tired , so it slept .", "the cat was happy .", "the dog slept ."] * 3


@pytest.fixture
def filler() -> Filler:
    torch.manual_seed(3)
    tokenizer = learn("word", TEXT)
    settings = EncoderSettings(layers=2, width=8, feed_forward=7, heads=2, position="rotary")
    return Filler(EncoderModel(settings, tokenizer.size + 1, tokenizer.size), tokenizer)


@pytest.fixture
def filler_folder(filler: Filler, tmp_path: Path) -> Path:
    size = filler.tokenizer.size
    config = RunConfig(task="fill-mask", tokenizers={"text": "word"}, sizes=(size + 1, size), model=filler.model.settings)
    with RunWriter(tmp_path / "fills") as run:
        run.finish(config, filler.model, filler.tokenizer)
    return tmp_path / "fills"
