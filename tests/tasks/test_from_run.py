from __future__ import annotations

from pathlib import Path

import attent
from attent.runs.config import RunConfig, read_config, write_config
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.from_run import FromRun


def test_a_loaded_run_says_what_it_is(filler: FillMask, filler_folder: Path) -> None:
    loaded = attent.load(filler_folder)
    parameters = sum(parameter.numel() for parameter in filler.model.parameters())
    assert isinstance(loaded, FromRun)
    assert repr(loaded) == f"FillMask: fills blanks, EncoderModel with {parameters:,} parameters\ntraining unfinished"
    assert repr(filler) == f"FillMask(EncoderModel with {parameters:,} parameters)"


def test_training_and_scores_are_said_too(filler_folder: Path) -> None:
    config = read_config(filler_folder)
    outcome = {"updates": 12_000, "validation": {"loss": 1.23456, "accuracy": 61.0}}
    write_config(config.model_copy(update={"training": {"outcome": outcome}}), filler_folder)
    assert (
        repr(attent.load(filler_folder)).splitlines()[1]
        == "trained for 12,000 updates; validation: loss 1.235, accuracy 61"
    )


def test_languages_are_said_too(filler: FillMask) -> None:
    class Translator(FromRun):
        model = filler.model
        config = RunConfig.model_construct(
            task="translate", corpus={"text": {"source_language": "zh", "target_language": "en"}}, training={}
        )

    assert repr(Translator()).startswith("Translator: translates zh → en, EncoderModel with ")
