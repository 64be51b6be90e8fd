from pathlib import Path

import pytest
import torch

import attent
from attent.errors import RunError
from attent.models.build import build
from attent.models.settings import TransformerSettings
from attent.runs.config import RunConfig, read_config, write_config
from attent.runs.folder import RunWriter
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.from_run import FromRun
from attent.tasks.translation import translator
from attent.text.tokenizer import SPECIALS
from attent.views.trace import ForwardPass


@pytest.fixture
def filler_folder(filler: FillMask, tmp_path: Path) -> Path:
    size = filler.tokenizer.size
    files = {"tokenizers": {"text": "word"}, "sizes": (size + 1, size)}
    with RunWriter(tmp_path / "fills") as run:
        run.finish(RunConfig(task="fill-mask", model=filler.model.settings, **files), filler.model, filler.tokenizer)
    return tmp_path / "fills"


def test_a_part_of_somebodys_own_is_imported_where_the_run_is_trusted(filler: FillMask, tmp_path: Path) -> None:
    score, sizes = "attent.attention.scores.dot:Dot", {"width": 8, "feed_forward": 7, "heads": 2}
    settings = TransformerSettings(encoder_layers=1, decoder_layers=1, score=score, **sizes)
    with RunWriter(tmp_path / "run") as run:
        config = RunConfig(model=settings, tokenizers={"source": "word", "target": "word"})
        run.finish(config, build(settings, *[filler.tokenizer.size] * 2), filler.tokenizer, filler.tokenizer)
    for load in (attent.load, translator.load):
        with pytest.raises(RunError, match=r"model\.score = 'attent\.attention\.scores\.dot:Dot' would import"):
            load(tmp_path / "run")
    loaded = attent.load(tmp_path / "run", trust_code=True)
    assert {type(module.score).__name__ for module in loaded.model.modules() if hasattr(module, "score")} == {"Dot"}


def test_a_loaded_run_says_what_it_is(filler: FillMask, filler_folder: Path) -> None:
    parameters = sum(parameter.numel() for parameter in filler.model.parameters())
    said = f"FillMask: fills blanks, EncoderModel with {parameters:,} parameters\n"
    assert repr(attent.load(filler_folder)) == f"{said}training unfinished"
    assert repr(filler) == f"FillMask(EncoderModel with {parameters:,} parameters)"
    outcome = {"updates": 12_000, "validation": {"loss": 1.23456, "accuracy": 61.0}}
    config = read_config(filler_folder).model_copy(update={"training": {"outcome": outcome}})
    write_config(config, filler_folder)
    told = "trained for 12,000 updates; validation: loss 1.235, accuracy 61"
    assert repr(attent.load(filler_folder)) == f"{said}{told}"

    corpus = {"text": {"source_language": "zh", "target_language": "en"}}

    class Translator(FromRun):
        model = filler.model
        config = RunConfig.model_construct(task="translate", corpus=corpus, training={})

    assert repr(Translator()).startswith("Translator: translates zh → en, EncoderModel with ")


def test_a_pass_runs_as_often_as_one_likes_and_names_its_outputs(filler: FillMask) -> None:
    word = filler.tokenizer.piece(SPECIALS).strip()
    forward_pass: ForwardPass = filler.forward_pass(f"{word} [MASK]")
    first, second = forward_pass.run(), forward_pass.run()
    assert list(first) == [
        f"encoder.layers.{layer}.self_attention" for layer in range(len(filler.model.encoder.layers))
    ]
    for name in first:
        assert torch.equal(first[name].weights.dense(), second[name].weights.dense())
    assert list(forward_pass.rows or ()) == [1]
    assert forward_pass.output_name(forward_pass.first) == word
