from pathlib import Path

import pytest

import attent
from attent.decoding import filler, translator
from attent.decoding.filler import Filler
from attent.decoding.translator import Translator
from attent.errors import RunError
from attent.models.encoder_settings import EncoderSettings
from attent.models.settings import build
from attent.models.transformer_settings import TransformerSettings
from attent.runs.folder import RunConfig, RunWriter


def translating(folder: Path, of: Filler) -> Path:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=7, heads=2)
    with RunWriter(folder / "translates") as run:
        config = RunConfig(model=settings, tokenizers={"source": "word", "target": "word"})
        run.finish(config, build(settings, of.tokenizer.size, of.tokenizer.size), of.tokenizer, of.tokenizer)
    return folder / "translates"


def test_a_run_is_loaded_as_what_it_does(filler: Filler, filler_folder: Path, tmp_path: Path) -> None:
    assert isinstance(attent.load(filler_folder), Filler)
    assert isinstance(attent.load(translating(tmp_path, filler)), Translator)


def test_a_run_of_another_task_names_its_command(filler_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"fills fills blanks: attent fill \S+fills TEXT$"):
        translator.load(filler_folder)
    with RunWriter(tmp_path / "classifies") as run:
        settings = EncoderSettings(layers=1, width=8, feed_forward=7, heads=2, input="vectors", cls=True)
        run.finish(RunConfig(task="classify", tokenizers={}, sizes=(3, 2), model=settings), build(settings, 3, 2))
    with pytest.raises(RunError, match=r"classifies classifies: attent classify \S+classifies FILE$"):
        filler.load(tmp_path / "classifies")
