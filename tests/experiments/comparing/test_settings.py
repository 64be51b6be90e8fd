from __future__ import annotations

import pytest

from attent.errors import UnknownNameError
from attent.experiments.comparing import settings
from attent.experiments.comparing.settings import MODELS, chosen
from attent.models.settings import build


@pytest.mark.parametrize("captions", [False, True])
def test_every_model_can_be_built(captions: bool) -> None:
    files = {"train": "train.tsv", "valid": "valid.tsv"}
    for name in MODELS:
        model = settings.model(name, captions=captions)
        if captions:
            found = settings.on_captions(files, model, updates=None, minutes=6.0, seed=2)
        else:
            found = settings.on_dates(model, updates=5, minutes=2.0, seed=2)
        assert found.training.seed == 2
        assert build(found.model, 50, 50).longest is None


def test_the_budget_is_the_same_for_all() -> None:
    made = [settings.on_dates(settings.model(name), updates=5, minutes=None, seed=1) for name in MODELS]
    assert len({(one.dates, one.training.updates, one.training.batch_pairs, one.training.precision) for one in made}) == 1


def test_those_asked_for_in_their_order() -> None:
    assert chosen("model", None, MODELS) == list(MODELS)
    assert chosen("model", ["luong", "none"], MODELS) == ["none", "luong"]
    with pytest.raises(UnknownNameError, match=r"unknown model 'loung'.*luong"):
        chosen("model", ["loung"], MODELS)


def test_dates_are_made_once(small: None) -> None:
    dates = settings.on_dates(settings.model("none"), updates=1, minutes=None, seed=1).dates
    assert settings.corpus(dates) is settings.corpus(dates)
