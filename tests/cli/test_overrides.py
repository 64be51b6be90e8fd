from __future__ import annotations

import tomllib

import pytest

from attent.cli.overrides import changed, toml
from attent.errors import ArgumentError, UnknownNameError
from attent.tasks.settings import RunSettings, parse


@pytest.fixture
def start() -> RunSettings:
    return parse("[model]\nwidth = 16\n[training]\nupdates = 5\nminutes = 2\nbatch_pairs = 8\nbetas = [0.8, 0.9]\n", "start.toml")


def test_without_changes_settings_stay_as_they_are(start: RunSettings) -> None:
    assert changed(start) == start


def test_values_are_read_as_toml_or_else_as_text(start: RunSettings) -> None:
    new = changed(start, ["training.learning_rate=3e-4", "model.score=additive", 'model.position="alibi"', "training.betas=[0.9, 0.99]"])
    assert new.training.learning_rate == 3e-4
    assert (new.model.score, new.model.position, new.model.width) == ("additive", "alibi", 16)
    assert new.training.betas == (0.9, 0.99)


def test_a_normalizer_has_two_spellings(start: RunSettings) -> None:
    for change in ("model.normalizer=hard", "model.normaliser=hard"):
        new = changed(start, ["model.normaliser=sparsemax", change])
        assert new.model.normaliser == changed(new).model.normaliser == "hard"


def test_a_limit_of_the_command_line_takes_the_place_of_both(start: RunSettings) -> None:
    assert (changed(start, minutes=0.5).training.minutes, changed(start, minutes=0.5).training.updates) == (0.5, None)
    assert (changed(start, updates=7).training.minutes, changed(start, updates=7).training.updates) == (None, 7)
    assert changed(start, save_every=7, tensorboard=True).training.model_dump() == start.training.model_dump() | {
        "save_every": 7,
        "tensorboard": True,
    }
    assert changed(start, sharded=True).training.sharded
    assert changed(start, seed=9).training.model_dump() == start.training.model_dump() | {"seed": 9}


@pytest.mark.parametrize(
    "change", ["nonsense", "updates=3", "=3", "training.=3", "training.updates.more=3", "a.b=" + "[" * 100_000, "a.b=" + "9" * 5_000]
)
def test_a_change_that_is_none(start: RunSettings, change: str) -> None:
    with pytest.raises(ArgumentError, match="--set"):
        changed(start, [change])


def test_an_unknown_key_is_said_with_the_nearest(start: RunSettings) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'learning_rate'"):
        changed(start, ["training.learningrate=1"])
    with pytest.raises(ArgumentError, match=r"training\.updates"):
        changed(start, ["training.updates=-1"])


def test_toml_is_read_back_as_it_was() -> None:
    tables = {"a": {"text": 'a "b" ü', "list": [1, 2.5], "true": True, "inner": {"deep": 1e-9}}, "b": {}}
    assert tomllib.loads(toml(tables)) == tables


@pytest.mark.parametrize("change", ["training.warmup=1979-05-27", "training.warmup=nan"])
def test_a_value_that_no_setting_has_is_refused(start: RunSettings, change: str) -> None:
    with pytest.raises(ArgumentError, match=r"^warmup must be text, a finite number, true or false, or a list of these, got "):
        changed(start, [change])
