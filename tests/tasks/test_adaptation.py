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

MODEL_TABLE = "[model]\nencoder_layers = 1\ndecoder_layers = 1\nwidth = 16\nfeed_forward = 17\nheads = 2\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of an old and of a new corpus, and a run that was trained on the old one."""
    folder = tmp_path_factory.mktemp("adaptation")
    old = [f"the dog {number}\tder Hund {number}\n" for number in range(31)]
    (folder / "old.tsv").write_text("".join(old), encoding="utf-8")
    new = [f"a cat {number}\teine Katze {number}\n" for number in range(7)]
    (folder / "new.tsv").write_text("".join(new), encoding="utf-8")
    text = f'[text]\ntrain = "{folder}/old.tsv"\ntokenizer = "char"\nsource_language = "en"\ntarget_language = "de"\n'
    settings = parse(f"{text}{MODEL_TABLE}[training]\nupdates = 2\nbatch_pairs = 8\n", "old.toml")
    follow(settings, folder / "run")
    return folder


def adaptation(folder: Path, training: str) -> RunSettings:
    text = f'[text]\ntrain = "{folder}/new.tsv"\nreplay = "{folder}/old.tsv"\ntokenizer = "char"\n'
    return parse(f'{text}[training]\nprecision = "float32"\nbatch_pairs = 8\n{training}\n', "new.toml")


@pytest.mark.parametrize("frozen", [("decoder", "output"), ("embeddings", "encoder")])
def test_frozen_parts_stay_and_all_others_learn(tmp_path: Path, folder: Path, frozen: tuple[str, ...]) -> None:
    settings = adaptation(folder, f"updates = 2\nfreeze = [{', '.join(map(repr, frozen))}]")
    follow(settings, tmp_path / "new", init_from=folder / "run")
    before, after = load(folder / "run").model, load(tmp_path / "new").model
    weights = {id(weight): name for name, weight in after.named_parameters()}
    stays = {weights[id(weight)] for part in frozen for module in after.parts[part] for weight in module.parameters()}
    pairs = zip(before.named_parameters(), after.parameters(), strict=True)
    assert {name for (name, weight), learned in pairs if torch.equal(weight, learned)} == stays != set()
    # languages and model are those of the run
    config = read_config(tmp_path / "new")
    assert (config.languages, config.model) == ("en → de", read_config(folder / "run").model)
    assert config.corpus["text"]["replay"] == f"{folder}/old.tsv"


def test_a_part_that_is_none_is_refused_before_anything_is_written(tmp_path: Path, folder: Path) -> None:
    every = '"embeddings", "encoder", "decoder", "output"'
    for parts, error, message in (
        ('"encodr"', UnknownNameError, "unknown part of the model 'encodr'"),
        (every, ArgumentError, "nothing is left to train: embeddings, encoder"),
    ):
        settings = adaptation(folder, f"updates = 2\nfreeze = [{parts}]")
        with pytest.raises(error, match=message):
            follow(settings, tmp_path / "new", init_from=folder / "run")
    assert not (tmp_path / "new").exists()


def test_an_adaptation_goes_on_to_the_last_bit(tmp_path: Path, folder: Path) -> None:
    for name, updates in (("whole", 6), ("part", 4)):
        settings = adaptation(folder, f'updates = {updates}\nsave_every = 2\nfreeze = ["embeddings"]')
        follow(settings, tmp_path / name, init_from=folder / "run")
    resume(tmp_path / "part", {"updates": 6})
    assert digest(tmp_path / "part" / MODEL) == digest(tmp_path / "whole" / MODEL)


def test_the_suggestion_is_gentler_and_has_no_model(folder: Path) -> None:
    files = {"train": f"{folder}/new.tsv", "replay": f"{folder}/old.tsv"}
    settings = corpus_settings(files, None, init_from=folder / "run")
    assert "model" not in settings.model_fields_set
    assert settings.training.learning_rate == 1e-3
    assert fine_tuning(suggest(2_000), 512)["training"] == suggest(2_000)["training"] | {"learning_rate": 8e-5}
