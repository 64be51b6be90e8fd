from __future__ import annotations

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
)
from attent.tasks.settings import RunSettings, parse


@pytest.fixture
def start() -> RunSettings:
    return parse(
        "[model]\nwidth = 16\n[training]\nupdates = 5\nminutes = 2\nbatch_pairs = 8\nbetas = [0.8, 0.9]\n", "start.toml"
    )


def test_values_are_read_as_toml_or_else_as_text(start: RunSettings) -> None:
    assert override(start) == start
    changes = ["training.learning_rate=3e-4", 'model.position="alibi"', "training.betas=[0.9, 0.99]"]
    # the later of two changes of a key counts
    new = override(start, [*changes, "model.score=additive", "model.normalizer=sparsemax", "model.normalizer=hard"])
    assert new.training.learning_rate == 3e-4
    assert (new.model.score, new.model.position, new.model.width) == ("additive", "alibi", 16)
    assert new.training.betas == (0.9, 0.99)
    assert new.model.normalizer == override(new).model.normalizer == "hard"


def test_a_limit_of_the_command_line_takes_the_place_of_both(start: RunSettings) -> None:
    by_minutes, by_updates = override(start, minutes=0.5).training, override(start, updates=7).training
    assert (by_minutes.minutes, by_minutes.updates) == (0.5, None)
    assert (by_updates.minutes, by_updates.updates) == (None, 7)
    for values in ({"save_every": 7, "log": "tensorboard"}, {"seed": 9}, {"keep_last": 2}):
        assert override(start, **values).training.model_dump() == start.training.model_dump() | values


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        *((change, ArgumentError, "--set") for change in ("nonsense", "updates=3", "=3", "training.=3")),
        ("training.updates.more=3", ArgumentError, "--set"),
        ("a.b=" + "[" * 100_000, ArgumentError, "--set"),
        ("a.b=" + "9" * 5_000, ArgumentError, "--set"),
        ("training.learningrate=1", UnknownNameError, "did you mean 'learning_rate'"),
        ("training.updates=-1", ArgumentError, r"training\.updates"),
        ("training.warmup=1979-05-27", ArgumentError, r"training\.warmup.* got datetime"),
        (
            "training.learning_rate=inf",
            ArgumentError,
            r"training\.learning_rate: input should be a finite number, got inf",
        ),
    ],
)
def test_a_change_that_is_none(start: RunSettings, change: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        override(start, [change])


def test_files_alone_get_settings_by_minutes_or_preset() -> None:
    said: list[str] = []
    files = {"train_source": "-", "train_target": "b.txt"}
    settings = corpus_settings(files, None, minutes=4, say=said.append)
    assert (settings.training.minutes, settings.training.updates, settings.training.batch_tokens) == (4, None, 1024)
    assert said[0].endswith("suggested: preset tiny with dropout 0.1, 4 minutes of updates of 1,024 tokens")
    assert override(settings, minutes=0.5).training.warmup == settings.training.warmup == 0.1
    chosen = corpus_settings(files, None, "small")
    assert (chosen.model.width, chosen.training.batch_tokens) == (256, 4096)
    with pytest.raises(ArgumentError, match="nothing to train on"):
        corpus_settings({"valid": "b.tsv"}, None)


def test_files_take_the_place_of_those_in_the_settings() -> None:
    start = parse("[text]\ntrain = 'a.tsv'\ntokenizer = 'word'\n[training]\nupdates = 3\nbatch_pairs = 5", "some.toml")
    chosen = corpus_settings({"train": "b.tsv"}, start)
    assert chosen.text is not None
    assert (chosen.text.train, chosen.text.tokenizer, chosen.training.updates) == ("b.tsv", "word", 3)


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


def test_a_folder_says_where_the_files_lie(tmp_path: Path) -> None:
    training = {"training": {"updates": 1, "batch_pairs": 8}}

    def resolved(**tables: object) -> RunSettings:
        return resolve_corpus(RunSettings.model_validate(training | tables), tmp_path)

    text = resolved(text={"train_source": "tok/a.en", "train_target": "/b.de", "valid": "-"}).text
    assert text is not None
    assert (text.train_source, text.train_target, text.valid) == (str(tmp_path / "tok" / "a.en"), "/b.de", "-")
    assert text.valid_source is text.valid_target is None
    animals = resolved(task="classify", images={"source": "animals", "size": 8})
    assert animals.images.source == str(tmp_path / "animals")
    assert resolved(task="classify", images={"source": "digits"}).images.source == "digits"
    assert resolve_files({"source": "digits", "size": "8"}, tmp_path) == {"source": "digits", "size": "8"}
    # a file of that name is one for any other corpus
    assert resolve_files({"train": "digits"}, tmp_path) == {"train": str(tmp_path / "digits")}
    labelled = resolved(task="classify", labelled={"train": "a.tsv", "test": "b.tsv"}).labelled
    assert labelled.test == str(tmp_path / "b.tsv")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    assert corpus_settings({"source": "digits"}, None, folder=tmp_path, table="images").images.source == "digits"
