import io
from pathlib import Path

import pytest
import torch

from attent.errors import ArgumentError, UnknownNameError
from attent.runs.config import read_config
from attent.runs.folder import MODEL
from attent.runs.weights import digest
from attent.tasks.overrides import corpus_settings
from attent.tasks.recipe import follow, resume
from attent.tasks.settings import RunSettings, parse
from attent.tasks.suggestions import fine_tuning, suggest
from attent.tasks.translation.translator import load
from attent.training.progress import Progress

MODEL_TABLE = "[model]\nencoder_layers = 1\ndecoder_layers = 1\nwidth = 16\nfeed_forward = 17\nheads = 2\n"


def quiet() -> Progress:
    return Progress(io.StringIO())


@pytest.fixture
def old(tmp_path: Path) -> Path:
    file = tmp_path / "old.tsv"
    file.write_text("".join(f"the dog {number}\tder Hund {number}\n" for number in range(31)), encoding="utf-8")
    return file


@pytest.fixture
def new(tmp_path: Path) -> Path:
    file = tmp_path / "new.tsv"
    file.write_text("".join(f"a cat {number}\teine Katze {number}\n" for number in range(7)), encoding="utf-8")
    return file


@pytest.fixture
def run(tmp_path: Path, old: Path) -> Path:
    text = f'[text]\ntrain = "{old}"\ntokenizer = "char"\nsource_language = "en"\ntarget_language = "de"\n'
    settings = parse(f"{text}{MODEL_TABLE}[training]\nupdates = 2\nbatch_pairs = 8\n", "old.toml")
    follow(settings, tmp_path / "old", progress=quiet())
    return tmp_path / "old"


def adaptation(new: Path, old: Path, training: str = "updates = 3") -> RunSettings:
    table = f'precision = "float32"\nbatch_pairs = 8\n{training}\n'
    return parse(f'[text]\ntrain = "{new}"\nreplay = "{old}"\ntokenizer = "char"\n[training]\n{table}', "new.toml")


@pytest.mark.parametrize("frozen", [("decoder", "output"), ("embeddings", "encoder")])
def test_frozen_parts_stay_and_all_others_learn(
    tmp_path: Path, run: Path, new: Path, old: Path, frozen: tuple[str, ...]
) -> None:
    settings = adaptation(new, old, f"updates = 2\nfreeze = [{', '.join(map(repr, frozen))}]")
    follow(settings, tmp_path / "new", init_from=run, progress=quiet())
    before, after = load(run).model, load(tmp_path / "new").model
    weights = {id(weight): name for name, weight in after.named_parameters()}
    stays = {weights[id(weight)] for part in frozen for module in after.parts[part] for weight in module.parameters()}
    pairs = zip(before.named_parameters(), after.parameters(), strict=True)
    assert {name for (name, weight), learned in pairs if torch.equal(weight, learned)} == stays != set()


def test_a_part_that_is_none_is_refused_before_anything_is_written(
    tmp_path: Path, run: Path, new: Path, old: Path
) -> None:
    for parts, error, message in (
        ('"encodr"', UnknownNameError, "unknown part of the model 'encodr'"),
        (
            '"embeddings", "encoder", "decoder", "output"',
            ArgumentError,
            "nothing is left to train: embeddings, encoder",
        ),
    ):
        settings = adaptation(new, old, f"updates = 2\nfreeze = [{parts}]")
        with pytest.raises(error, match=message):
            follow(settings, tmp_path / "new", init_from=run, progress=quiet())
    assert not (tmp_path / "new").exists()


def test_an_adaptation_goes_on_to_the_last_bit(tmp_path: Path, run: Path, new: Path, old: Path) -> None:
    whole = adaptation(new, old, 'updates = 6\nsave_every = 2\nfreeze = ["embeddings"]')
    part = adaptation(new, old, 'updates = 4\nsave_every = 2\nfreeze = ["embeddings"]')
    follow(whole, tmp_path / "whole", init_from=run, progress=quiet())
    follow(part, tmp_path / "part", init_from=run, progress=quiet())
    resume(tmp_path / "part", {"updates": 6}, progress=quiet())
    assert digest(tmp_path / "part" / MODEL) == digest(tmp_path / "whole" / MODEL)


def test_languages_and_model_are_those_of_the_run(tmp_path: Path, run: Path, new: Path, old: Path) -> None:
    follow(adaptation(new, old, "updates = 1"), tmp_path / "new", init_from=run, progress=quiet())
    config = read_config(tmp_path / "new")
    assert (config.languages, config.model) == ("en → de", read_config(run).model)
    assert config.corpus["text"]["replay"] == str(old)


def test_the_suggestion_is_gentler_and_has_no_model(run: Path, new: Path, old: Path) -> None:
    settings = corpus_settings({"train": str(new), "replay": str(old)}, None, init_from=run)
    assert "model" not in settings.model_fields_set
    assert settings.training.learning_rate == 1e-3
    assert fine_tuning(suggest(2_000), 512)["training"] == suggest(2_000)["training"] | {"learning_rate": 8e-5}
