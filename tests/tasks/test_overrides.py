from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from attent.errors import ArgumentError, UnknownNameError
from attent.tasks.overrides import (
    corpus_settings,
    known_task,
    override,
    resolve_corpus,
    resolve_files,
    select_table,
    toml,
)
from attent.tasks.settings import RunSettings, parse


@pytest.fixture
def start() -> RunSettings:
    return parse(
        "[model]\nwidth = 16\n[training]\nupdates = 5\nminutes = 2\nbatch_pairs = 8\nbetas = [0.8, 0.9]\n", "start.toml"
    )


def test_without_changes_settings_stay_as_they_are(start: RunSettings) -> None:
    assert override(start) == start


def test_values_are_read_as_toml_or_else_as_text(start: RunSettings) -> None:
    new = override(
        start,
        ["training.learning_rate=3e-4", "model.score=additive", 'model.position="alibi"', "training.betas=[0.9, 0.99]"],
    )
    assert new.training.learning_rate == 3e-4
    assert (new.model.score, new.model.position, new.model.width) == ("additive", "alibi", 16)
    assert new.training.betas == (0.9, 0.99)


def test_the_later_of_two_changes_of_a_key_counts(start: RunSettings) -> None:
    new = override(start, ["model.normalizer=sparsemax", "model.normalizer=hard"])
    assert new.model.normalizer == override(new).model.normalizer == "hard"


def test_a_limit_of_the_command_line_takes_the_place_of_both(start: RunSettings) -> None:
    assert (override(start, minutes=0.5).training.minutes, override(start, minutes=0.5).training.updates) == (0.5, None)
    assert (override(start, updates=7).training.minutes, override(start, updates=7).training.updates) == (None, 7)
    assert override(start, save_every=7, log="tensorboard").training.model_dump() == start.training.model_dump() | {
        "save_every": 7,
        "log": "tensorboard",
    }
    assert override(start, sharded=True).training.sharded
    assert override(start, seed=9).training.model_dump() == start.training.model_dump() | {"seed": 9}


@pytest.mark.parametrize(
    "change",
    [
        "nonsense",
        "updates=3",
        "=3",
        "training.=3",
        "training.updates.more=3",
        "a.b=" + "[" * 100_000,
        "a.b=" + "9" * 5_000,
    ],
)
def test_a_change_that_is_none(start: RunSettings, change: str) -> None:
    with pytest.raises(ArgumentError, match="--set"):
        override(start, [change])


def test_an_unknown_key_is_said_with_the_nearest(start: RunSettings) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'learning_rate'"):
        override(start, ["training.learningrate=1"])
    with pytest.raises(ArgumentError, match=r"training\.updates"):
        override(start, ["training.updates=-1"])


def test_toml_is_read_back_as_it_was() -> None:
    tables = {"a": {"text": 'a "b" ü', "list": [1, 2.5], "true": True, "inner": {"deep": 1e-9}}, "b": {}}
    assert tomllib.loads(toml(tables)) == tables


@pytest.mark.parametrize("change", ["training.warmup=1979-05-27", "training.warmup=nan"])
def test_a_value_that_no_setting_has_is_refused(start: RunSettings, change: str) -> None:
    with pytest.raises(
        ArgumentError, match=r"^warmup must be text, a finite number, true or false, or a list of these, got "
    ):
        override(start, [change])


def test_a_few_minutes_have_settings_of_their_own() -> None:
    said: list[str] = []
    settings = corpus_settings({"train_source": "-", "train_target": "b.txt"}, None, minutes=4, say=said.append)
    assert (settings.training.minutes, settings.training.updates, settings.training.batch_tokens) == (4, None, 1024)
    assert said[0].endswith("suggested: preset tiny with dropout 0.1, 4 minutes of updates of 1,024 tokens")
    assert override(settings, minutes=0.5).training.warmup == settings.training.warmup == 0.1


def test_a_preset_is_taken_as_asked() -> None:
    chosen = corpus_settings({"train_source": "-", "train_target": "b.txt"}, None, "small")
    assert (chosen.model.width, chosen.training.batch_tokens) == (256, 4096)


def test_files_take_the_place_of_those_in_the_settings() -> None:
    start = parse("[text]\ntrain = 'a.tsv'\ntokenizer = 'word'\n[training]\nupdates = 3\nbatch_pairs = 5", "some.toml")
    chosen = corpus_settings({"train": "b.tsv"}, start)
    assert chosen.text is not None
    assert (chosen.text.train, chosen.text.tokenizer, chosen.training.updates) == ("b.tsv", "word", 3)


def test_validation_alone_is_nothing_to_train_on() -> None:
    with pytest.raises(ArgumentError, match="nothing to train on"):
        corpus_settings({"valid": "b.tsv"}, None)


def test_a_folder_says_where_the_files_lie(tmp_path: Path) -> None:
    files = (
        '[text]\ntrain_source = "tok/a.en"\ntrain_target = "/b.de"\nvalid = "-"\n[training]\nupdates = 1\n'
        "batch_pairs = 2\n"
    )
    text = resolve_corpus(parse(files, "some.toml"), tmp_path).text
    assert text is not None
    assert (text.train_source, text.train_target, text.valid) == (str(tmp_path / "tok" / "a.en"), "/b.de", "-")
    assert text.valid_source is text.valid_target is None


def test_the_files_say_what_is_learnt() -> None:
    pairs, lines = {"train": "a.tsv", "valid": None}, {"train": "a.txt", "valid": None}
    empty = {"train": None, "valid": None}
    assert select_table({"text": pairs, "lines": empty}, None) == ("text", {"train": "a.tsv"})
    assert select_table({"text": empty, "lines": lines}, "fill-mask") == ("lines", {"train": "a.txt"})
    assert select_table({"text": empty, "lines": empty}, "fill-mask") == ("text", {})
    with pytest.raises(ArgumentError, match=r"files for \[text\] and for \[lines\] cannot be used in one run"):
        select_table({"text": pairs, "lines": lines}, None)
    with pytest.raises(ArgumentError, match="these files are for --task fill-mask, not for --task translate"):
        select_table({"text": empty, "lines": lines}, "translate")
    with pytest.raises(UnknownNameError, match="unknown task 'fil-mask'; did you mean 'fill-mask'"):
        known_task("fil-mask")
    assert known_task("language-model") == "text-generation"


def test_pictures_of_a_folder_lie_where_data_says(tmp_path: Path) -> None:
    tables = {"task": "classify", "training": {"updates": 1, "batch_pairs": 8}}
    settings = RunSettings.model_validate(tables | {"images": {"source": "animals", "size": 8}})
    assert resolve_corpus(settings, tmp_path).images.source == str(tmp_path / "animals")
    settings = RunSettings.model_validate(tables | {"images": {"source": "digits"}})
    assert resolve_corpus(settings, tmp_path).images.source == "digits"
    assert resolve_files({"source": "digits", "size": "8"}, tmp_path) == {"source": "digits", "size": "8"}
    # a file of that name is one for any other corpus
    assert resolve_files({"train": "digits"}, tmp_path) == {"train": str(tmp_path / "digits")}
    settings = RunSettings.model_validate(tables | {"labelled": {"train": "a.tsv", "test": "b.tsv"}})
    assert resolve_corpus(settings, tmp_path).labelled.test == str(tmp_path / "b.tsv")


def test_digits_lie_in_no_folder(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    assert corpus_settings({"source": "digits"}, None, folder=tmp_path, table="images").images.source == "digits"
