from __future__ import annotations

import pytest

from attent.tasks.settings import RunSettings
from attent.tasks.suggestions import (
    MASKED_EPOCHS,
    MIN_UPDATES,
    suggest,
    suggest_labelled,
    suggest_pictures,
    suggest_text,
    suggest_vectors,
    summary,
)
from attent.training.optimizer import SCHEDULES, warmup_updates
from attent.training.settings import TrainingSettings


@pytest.mark.parametrize(
    ("pairs", "minutes", "batch"),
    [(2_000, 2, 1024), (44_016, 4, 1024), (5_000_000, 10, 1024), (29_000, 60, 4096)],
)
def test_a_short_training_gets_a_small_model_and_many_updates(pairs: int, minutes: float, batch: int) -> None:
    tables = suggest(pairs, minutes=minutes)
    settings = RunSettings.model_validate(tables)
    assert (settings.training.updates, settings.training.minutes) == (None, minutes)
    sizes = settings.training.batch_tokens, settings.training.accumulate, tables["model"]["preset"]
    assert sizes == (batch, 1, "tiny")
    assert f"{minutes:g} minutes of updates of {batch:,} tokens" in summary(tables, pairs)


@pytest.mark.parametrize("pairs", [2_000, 29_000, 5_000_000])
@pytest.mark.parametrize("limit", [{"minutes": 2}, {"updates": 100}], ids=str)
def test_the_rate_reaches_its_peak_before_a_fifth_of_whatever_ends_training(pairs: int, limit: dict[str, int]) -> None:
    table = suggest(pairs, minutes=limit.get("minutes"))["training"]
    training = TrainingSettings.model_validate(table | {"updates": None, "minutes": None} | limit)
    count = 100  # of as many updates as fit
    schedule, warmup = SCHEDULES[training.schedule], training.warmup
    rates = [
        schedule(update, (update - 1) / count, warmup_updates(warmup, update, update / count), 128)
        for update in range(1, count + 1)
    ]
    assert rates.index(max(rates)) < count / 5
    assert max(rates) > 0.9
    assert rates[-1] < 0.01


def test_by_hand() -> None:
    # 20 epochs of 2,000 pairs of 20 tokens are 800,000 tokens: 781 updates of 1,024, of which the last is the fifth
    # validated
    tables, large = suggest(2_000), suggest(5_000_000)["model"]
    assert tables["training"]["updates"] == 5 * tables["training"]["validate_every"] == 780
    assert summary(tables, 2_000) == "2,000 lines, suggested: preset tiny with dropout 0.3, 780 updates of 1,024 tokens"
    assert suggest(1)["training"]["updates"] == MIN_UPDATES
    # fewer pairs get more dropout and no larger model
    assert tables["model"]["dropout"] > large["dropout"]
    assert (tables["model"]["preset"], large["preset"]) == ("tiny", "small")
    # a long training by minutes is that of the number of pairs
    tables, usual = suggest(29_000, minutes=60), suggest(29_000)
    assert tables["model"] == usual["model"]
    assert usual["training"].pop("updates") == 3540
    assert tables["training"].pop("minutes") == 60
    assert tables["training"] == usual["training"]
    # blanks take more epochs and no smoothing
    blanks = suggest(2_000, epochs=MASKED_EPOCHS, label_smoothing=0.0)["training"]
    assert (blanks["updates"], blanks["label_smoothing"]) == (2340, 0.0)
    assert suggest(2_000)["training"]["label_smoothing"] == 0.1


@pytest.mark.parametrize(
    ("lines", "characters"), [(1, 1), (29_000, 1_800_000), (40_000, 1_100_000), (700, 1_100_000), (1, 10**9)]
)
def test_text_to_be_generated_has_settings_by_its_length(lines: int, characters: int) -> None:
    tables = suggest_text(lines, characters)
    files = {"task": "text-generation", "lines": {"train": "a.txt", **tables.get("lines", {})}}
    settings = RunSettings.model_validate(tables | files)
    assert settings.training.label_smoothing == 0
    assert settings.lines is not None
    # lines of 1,571 characters are no texts by themselves
    assert settings.lines.packing == ("text" if characters > 1000 * lines else "lines")
    assert tables["training"] == suggest(max(characters // 100, 1), label_smoothing=0.0)["training"]


@pytest.mark.parametrize("examples", [2, 20_000, 1_000_000])
def test_pictures_and_vectors_have_settings(examples: int) -> None:
    for suggested in (suggest_pictures, suggest_vectors):
        tables = suggested(examples)
        images = {"source": "digits", **tables.get("images", {})}
        settings = RunSettings.model_validate({"task": "classify", **tables, "images": images})
        assert 0 < settings.training.warmup < 0.2
        assert settings.model.norm == "pre"
    assert "images" not in suggest_vectors(examples)
    tables = suggest_labelled(examples)
    assert RunSettings.model_validate({"task": "classify", **tables, "labelled": {"train": "a.tsv"}}).model.output_bias


def test_settings_for_text_and_pictures_are_said() -> None:
    assert summary(suggest_text(7, 10**6), 7).endswith("updates of 1,024 tokens; lines as running text")
    message = summary(suggest_pictures(1_797), 1_797)
    start = "1,797 examples, suggested: preset tiny, layers 3, width 64 with dropout 0.0, 1,680 updates of 64 examples"
    assert message == f"{start}; pictures shifted, turned and scaled a little"
    assert summary(suggest_labelled(1_797), 1_797).startswith("1,797 lines, suggested: preset tiny with dropout 0.2, ")
