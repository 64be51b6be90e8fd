"""Settings that follow from the number of pairs."""

from __future__ import annotations

import pytest

from attent.tasks.settings import RunSettings
from attent.tasks.suggestions import MIN_UPDATES, suggest, suggest_pictures, suggest_text, suggest_vectors, summary


@pytest.mark.parametrize("pairs", [1, 2_000, 29_000, 5_000_000])
def test_they_are_settings(pairs: int) -> None:
    settings = RunSettings.model_validate(suggest(pairs))
    assert settings.training.warmup < (settings.training.updates or 0)


def test_fewer_pairs_get_more_dropout_and_no_larger_model() -> None:
    few, many = suggest(2_000)["model"], suggest(5_000_000)["model"]
    assert few["dropout"] > many["dropout"]
    assert (few["preset"], many["preset"]) == ("tiny", "small")


def test_by_hand() -> None:
    # 20 epochs of 2,000 pairs of 20 tokens are 800,000 tokens: 781 updates of 1,024, of which the last is the fifth validated
    tables = suggest(2_000)
    assert tables["training"]["updates"] == 5 * tables["training"]["validate_every"] == 780
    assert summary(tables, 2_000) == "2,000 lines, suggested: preset tiny with dropout 0.3, 780 updates of 1,024 tokens"
    assert suggest(1)["training"]["updates"] == MIN_UPDATES


def test_blanks_take_more_epochs_and_no_smoothing() -> None:
    blanks = suggest(2_000, "fill-mask")["training"]
    assert (blanks["updates"], blanks["label_smoothing"]) == (2340, 0.0)
    assert suggest(2_000)["training"]["label_smoothing"] == 0.1


@pytest.mark.parametrize(("lines", "characters"), [(1, 1), (29_000, 1_800_000), (40_000, 1_100_000), (700, 1_100_000), (1, 10**9)])
def test_text_to_be_generated_has_settings_by_its_length(lines: int, characters: int) -> None:
    tables = suggest_text(lines, characters)
    settings = RunSettings.model_validate({"task": "text-generation", **tables, "lines": {"train": "a.txt", **tables.get("lines", {})}})
    assert settings.training.label_smoothing == 0
    assert settings.lines is not None
    # lines of 1,571 characters are no texts by themselves
    assert settings.lines.packing == ("text" if characters > 1000 * lines else "lines")
    assert tables["training"] == suggest(max(characters // 100, 1), "text-generation")["training"]


def test_running_text_is_said() -> None:
    assert summary(suggest_text(7, 10**6), 7).endswith("updates of 1,024 tokens; lines as running text")


@pytest.mark.parametrize("examples", [2, 1_797, 20_000, 1_000_000])
def test_pictures_and_vectors_have_settings(examples: int) -> None:
    for suggested in (suggest_pictures, suggest_vectors):
        tables = suggested(examples)
        images = {"source": "digits", **tables.get("images", {})}
        settings = RunSettings.model_validate({"task": "classify", **tables, "images": images})
        assert settings.training.warmup < (settings.training.updates or 0)
        assert settings.model.norm == "pre"
    assert "images" not in suggest_vectors(examples)


def test_what_suits_pictures_is_said() -> None:
    said = summary(suggest_pictures(1_797), 1_797)
    start = "1,797 examples, suggested: preset tiny, layers 3, width 64 with dropout 0.0, 1,680 updates of 64 examples"
    assert said == f"{start}; pictures shifted, turned and scaled a little"
    assert summary(suggest(1_797, "classify"), 1_797).startswith("1,797 lines, suggested: preset tiny with dropout 0.2, ")


def test_labelled_texts_have_settings() -> None:
    tables = suggest(2_000, "classify")
    assert RunSettings.model_validate({"task": "classify", **tables, "labelled": {"train": "a.tsv"}}).model.output_bias
