from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from attent.attention.capture.watch import watch
from attent.errors import ArgumentError, UnknownNameError
from attent.explorer.explorer import Explorer, TranslateRequest
from attent.explorer.loaded_run import LoadedRun, load_run, swap, with_examples
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
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


def test_the_same_run_with_another_normalizer_looks_otherwise(run_folder: Path) -> None:
    as_trained, changed_run = load_run(run_folder), load_run(run_folder, normalizer="hard")
    assert changed_run.name == "dates · normalizer hard"
    rows = [
        run.tool.map("abcd", "01")["encoder.layers.0.self_attention"].weights.dense()
        for run in (as_trained, changed_run)
    ]
    assert rows[0].max() < 1
    assert set(rows[1].flatten().tolist()) == {0.0, 1.0}
    assert torch.equal(rows[0].argmax(-1), rows[1].argmax(-1))
    # the search too, whose fast path is for softmax alone
    translation = changed_run.tool.translate(["abcd"])[0]
    with watch(changed_run.tool.model) as captured:
        assert changed_run.tool.translate(["abcd"])[0] == translation
    assert captured


def test_another_score(run_folder: Path) -> None:
    changed_run = load_run(run_folder, score="dot")
    query, key = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 5, 8)
    scores = [module.score for module in changed_run.tool.model.modules() if hasattr(module, "score")]
    assert {type(score).__name__ for score in scores} == {"Dot"}
    torch.testing.assert_close(scores[0](query, key), query @ key.mT)


def test_a_score_that_somebody_must_train_is_refused(translator: Translator) -> None:
    with pytest.raises(ArgumentError, match="additive"):
        swap(translator.model, score="additive")
    with pytest.raises(UnknownNameError, match="softmaxx"):
        swap(translator.model, normalizer="softmaxx")
    small = TransformerSettings(encoder_layers=1, decoder_layers=1, width=16, feed_forward=17, heads=2, score="general")
    with pytest.raises(ArgumentError, match="the score General of this run has parameters"):
        swap(Transformer(small, 9, 9), score="dot")
    with pytest.raises(ArgumentError, match="no attention"):
        swap(torch.nn.Linear(2, 2), normalizer="hard")
    assert swap(translator.model) == []


def test_examples_are_for_runs_that_read_them(filler: FillMask) -> None:
    run, pixels = LoadedRun("blanks", "fill-mask", filler), np.arange(2 * 8 * 8, dtype=np.uint8).reshape(2, 8, 8, 1)
    assert with_examples(run, None) is run
    with pytest.raises(ArgumentError, match="blanks reads texts"):
        with_examples(run, Pictures(pixels, None, ()))
    digits = LoadedRun("digits", "classify", None, Pictures(pixels, None, ()))
    assert np.array_equal(digits.example(1).pixels, pixels[1:])
    with pytest.raises(ArgumentError, match="row must be from 0 to 1, got 2"):
        digits.example(2)
