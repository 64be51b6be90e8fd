"""Settings that follow from the number of pairs."""

from __future__ import annotations

import pytest

from attent.config.settings import RunSettings
from attent.config.suggestions import LEAST, in_words, suggested


@pytest.mark.parametrize("pairs", [1, 2_000, 29_000, 5_000_000])
def test_they_are_settings(pairs: int) -> None:
    settings = RunSettings.model_validate(suggested(pairs))
    assert settings.training.warmup < (settings.training.updates or 0)


def test_fewer_pairs_get_more_dropout_and_no_larger_model() -> None:
    few, many = suggested(2_000)["model"], suggested(5_000_000)["model"]
    assert few["dropout"] > many["dropout"]
    assert (few["preset"], many["preset"]) == ("tiny", "small")


def test_by_hand() -> None:
    # 20 epochs of 2,000 pairs of 20 tokens are 800,000 tokens: 781 updates of 1,024, of which the last is the fifth validated
    tables = suggested(2_000)
    assert tables["training"]["updates"] == 5 * tables["training"]["validate_every"] == 780
    assert in_words(tables, 2_000) == "2,000 lines: preset tiny with dropout 0.3, 780 updates of 1,024 tokens"
    assert suggested(1)["training"]["updates"] == LEAST


def test_blanks_take_more_epochs_and_no_smoothing() -> None:
    blanks = suggested(2_000, "fill-mask")["training"]
    assert (blanks["updates"], blanks["label_smoothing"]) == (2340, 0.0)
    assert suggested(2_000)["training"]["label_smoothing"] == 0.1
