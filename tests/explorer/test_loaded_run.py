from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attent.errors import ArgumentError
from attent.explorer.explorer import Explorer, TranslateRequest
from attent.explorer.loaded_run import LoadedRun, load_run, with_examples
from attent.runs.folder import RunConfig, RunWriter
from attent.tasks.classification.pictures import Pictures
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.translation.translator import Translator


def written(folder: Path, translator: Translator, **config: object) -> Path:
    with RunWriter(folder) as run:
        run_config = RunConfig(model=translator.model.settings, **config)
        run.finish(run_config, translator.model, translator.source_tokenizer, translator.target_tokenizer)
    return folder


@pytest.fixture
def run_folder(translator: Translator, tmp_path: Path) -> Path:
    return written(tmp_path / "dates", translator)


def test_a_run_is_loaded_with_its_task_and_its_check_of_inputs(
    run_folder: Path, translator: Translator, tmp_path: Path
) -> None:
    run = load_run(run_folder)
    assert run.describe() == {"name": "dates", "task": "translate", "reads": "texts", "examples": 0}
    assert run.tool.translate(["abcd"]) == translator.translate(["abcd"])
    explorer = Explorer([load_run(written(tmp_path / "run", translator, corpus={"dates": {}}))])
    with pytest.raises(ArgumentError, match="'abcd' has no four-digit year from 1800 to 2200"):
        next(explorer.translate(TranslateRequest(text="abcd")))
    explorer.close()


def test_examples_are_for_runs_that_read_them(filler: FillMask) -> None:
    run, pixels = LoadedRun("blanks", "fill-mask", filler), np.arange(2 * 8 * 8, dtype=np.uint8).reshape(2, 8, 8, 1)
    assert with_examples(run, None) is run
    with pytest.raises(ArgumentError, match="blanks reads texts"):
        with_examples(run, Pictures(pixels, None, ()))
    digits = LoadedRun("digits", "classify", None, Pictures(pixels, None, ()))
    assert np.array_equal(digits.example(1).pixels, pixels[1:])
    with pytest.raises(ArgumentError, match="row must be from 0 to 1, got 2"):
        digits.example(2)
