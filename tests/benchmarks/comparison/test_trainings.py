import json
from pathlib import Path

import pytest
import torch
from comparison import trainings
from comparison.trainings import MODELS, TrainingPlan, claim, outcome, select, train, translate

from attent.errors import ArgumentError, RunError, UnknownNameError
from attent.models.build import build
from attent.runs.config import read_config


def planned(updates: int = 2, name: str = "luong") -> TrainingPlan:
    model = trainings.model_settings(name)
    return TrainingPlan(f"dates/{name}-1", trainings.settings_on_dates(model, updates=updates, minutes=None, seed=1))


@pytest.mark.slow
def test_a_finished_training_is_not_repeated_and_needs_the_same_settings(small: None, tmp_path: Path, silent) -> None:
    messages: list[str] = []
    train([planned()], tmp_path, say=messages.append, progress=silent)
    assert messages == ["1 training, none already finished", "1/1 dates/luong-1"]
    written = (tmp_path / "dates/luong-1/model.safetensors").stat().st_mtime_ns
    train([planned()], tmp_path, say=messages.append, progress=silent)
    assert messages[2:] == ["1 training, 1 of them already finished"]
    assert (tmp_path / "dates/luong-1/model.safetensors").stat().st_mtime_ns == written
    with pytest.raises(ArgumentError, match="luong-1 was trained with another training: use the same options"):
        train([planned(3)], tmp_path, say=messages.append, progress=silent)
    second = TrainingPlan("dates/luong-1", planned(name="bahdanau").settings)
    with pytest.raises(ArgumentError, match="was trained with another model"):
        train([second], tmp_path, say=messages.append, progress=silent)


def test_what_was_interrupted_goes_on(small: None, tmp_path: Path, silent, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tmp_path / "whole"
    train([planned(4)], whole, say=lambda line: None, progress=silent)
    from attent.training import loop

    def stopped(self: loop.Training) -> None:
        self.save()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        learn = loop.Training.train_step
        patch.setattr(
            loop.Training, "train_step", lambda self: stopped(self) if self.state.update == 2 else learn(self)
        )
        with pytest.raises(KeyboardInterrupt):
            train([planned(4)], tmp_path / "parts", say=lambda line: None, progress=silent)
    assert read_config(tmp_path / "parts/dates/luong-1").state == "unfinished"
    train([planned(4)], tmp_path / "parts", say=lambda line: None, progress=silent)
    first, second = (folder / "dates/luong-1/model.safetensors" for folder in (whole, tmp_path / "parts"))
    assert first.read_bytes() == second.read_bytes()


def test_outcome_and_translations_are_those_of_the_run(small: None, tmp_path: Path, silent) -> None:
    train([planned()], tmp_path, say=lambda line: None, progress=silent)
    result, messages = outcome(planned(), tmp_path), list[str]()
    assert (result.updates, result.parameters > 100, result.loss > 0) == (2, True, True)

    actual = translate(planned(), tmp_path, "held-out dates", ["en | May 1, 2020"], messages.append)
    assert (len(actual.texts), actual.seconds > 0) == (1, True)
    assert messages == ["translating 1 texts of held-out dates with dates/luong-1"]


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    claim(tmp_path / "new", "length")
    claim(tmp_path / "new", "length")
    with pytest.raises(ArgumentError, match=r"new contains the comparison 'length', not 'why': name another folder"):
        claim(tmp_path / "new", "why")
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(ArgumentError, match=r"is not empty and contains no comparison"):
            claim(path, "length")
    (tmp_path / "new/comparison.json").write_text(json.dumps([]))
    with pytest.raises(RunError, match=r"comparison.json is damaged"):
        claim(tmp_path / "new", "length")


def test_each_training_chooses_among_all_threads(
    small: None, tmp_path: Path, silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, sizes = torch.get_num_threads(), list[int]()

    def takes_one(settings: object, path: Path, **arguments: object) -> None:
        sizes.append(torch.get_num_threads())
        torch.set_num_threads(1)

    monkeypatch.setattr(trainings, "follow", takes_one)
    torch.set_num_threads(2)
    try:
        train([planned(), planned(name="none")], tmp_path, say=lambda line: None, progress=silent)
        assert (sizes, torch.get_num_threads()) == ([2, 2], 2)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("captions", [False, True])
def test_every_model_can_be_built(captions: bool) -> None:
    files, budgets = {"train": "train.tsv", "valid": "valid.tsv"}, set()
    for name in MODELS:
        model = trainings.model_settings(name, captions=captions)
        if captions:
            run_settings = trainings.settings_on_captions(files, model, updates=None, minutes=6.0, seed=2)
        else:
            run_settings = trainings.settings_on_dates(model, updates=5, minutes=2.0, seed=2)
        assert run_settings.training.seed == 2
        assert build(run_settings.model, 50, 50).longest is None
        training = run_settings.training
        budgets.add((run_settings.dates, training.updates, training.batch_pairs, training.precision))
    # the same for all
    assert len(budgets) == 1


def test_those_asked_for_in_their_order() -> None:
    assert select("model", None, MODELS) == list(MODELS)
    assert select("model", ["luong", "none"], MODELS) == ["none", "luong"]
    with pytest.raises(UnknownNameError, match=r"unknown model 'loung'.*luong"):
        select("model", ["loung"], MODELS)
