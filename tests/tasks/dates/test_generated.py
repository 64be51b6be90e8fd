"""Generated corpora: made again from a run's settings, with gold links, and a check of translations."""

from __future__ import annotations

from pathlib import Path

import pytest

from attent.errors import ArgumentError, RunError
from attent.tasks.dates import DatesSettings, dates
from attent.tasks.dates.corpus import gold_links
from attent.tasks.dates.generated import generated_name, output_check, regenerate
from attent.text.tokenizer import CharTokenizer

SETTINGS = DatesSettings.model_validate({}).model_copy(update={"training_pairs": 3})
TABLES = {"dates": SETTINGS.model_dump(mode="json")}


def test_the_corpus_is_the_one_that_its_settings_make() -> None:
    corpus, expected = regenerate(Path("run"), TABLES), dates(SETTINGS)
    assert list(corpus.validation) == list(expected.validation)
    assert {name: list(pairs) for name, pairs in corpus.held_out.items()} == {
        name: list(pairs) for name, pairs in expected.held_out.items()
    }


def test_pairs_come_with_their_gold_links() -> None:
    corpus = regenerate(Path("run"), TABLES)
    pairs = corpus.validation[:2]
    source, target = (CharTokenizer.learn(getattr(pair, side) for pair in pairs) for side in ("source", "target"))
    sides, gold = corpus.with_gold(pairs, (source, target))
    assert [pair.source for pair in sides] == [source.encode(pair.source) for pair in pairs]
    assert gold == [gold_links(pair) for pair in pairs]


def test_a_corpus_in_files_is_not_generated() -> None:
    assert generated_name({"text": {}}) is None
    assert generated_name(TABLES) == "dates"
    with pytest.raises(ArgumentError, match="made again"):
        regenerate(Path("run"), {"text": {}})


def test_damaged_settings_are_said_to_be() -> None:
    with pytest.raises(RunError, match="damaged"):
        regenerate(Path("run"), {"dates": {"training_pairs": -1}})


def test_translations_are_checked_where_the_corpus_has_a_form() -> None:
    check = output_check(TABLES)
    assert check is not None
    assert check("2026-03-03") is None
    assert "no date" in str(check("2026-03-33"))
    assert output_check({"text": {}}) is None
