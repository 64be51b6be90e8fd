from pathlib import Path

import pytest

from attent.errors import ArgumentError, RunError
from attent.tasks.dates import DatesSettings
from attent.tasks.dates.corpus import gold_links
from attent.tasks.dates.generated import generated_name, input_check, is_date, output_check, regenerate, why_no_date
from attent.text.text import TranslationCorpus
from attent.text.tokenizer import CharTokenizer


def test_the_corpus_is_the_one_that_its_settings_make(small: DatesSettings, small_corpus: TranslationCorpus) -> None:
    corpus = regenerate(Path("run"), {"dates": small.model_dump(mode="json")})
    assert list(corpus.validation) == list(small_corpus.validation)
    assert corpus.held_out == small_corpus.held_out
    pairs = corpus.validation[:2]
    source, target = (CharTokenizer.learn(getattr(pair, side) for pair in pairs) for side in ("source", "target"))
    sides, gold = corpus.with_gold(pairs, (source, target))
    assert [pair.source for pair in sides] == [source.encode(pair.source) for pair in pairs]
    assert gold == [gold_links(pair) for pair in pairs]


def test_a_corpus_in_files_is_not_generated() -> None:
    assert generated_name({"text": {}}) is None
    assert generated_name({"dates": {}}) == "dates"
    with pytest.raises(ArgumentError, match="generated again"):
        regenerate(Path("run"), {"text": {}})
    with pytest.raises(RunError, match="damaged"):
        regenerate(Path("run"), {"dates": {"training_pairs": -1}})


def test_no_text_of_the_corpus_is_refused(small_corpus: TranslationCorpus) -> None:
    assert [pair.source for pair in small_corpus.train if why_no_date(pair.source)] == []
    assert all(is_date(pair.target) for pair in small_corpus.train)


@pytest.mark.parametrize(
    "text", ["banana", "", "fr | mardi 3 mars 26", "3 mars 1799", "3 mars 2201", "20260303", "fr | 3 mars 20 26"]
)
def test_a_text_without_a_whole_year_is_no_date(text: str) -> None:
    assert why_no_date(text) == f"{text!r} has no four-digit year from 1800 to 2200"


@pytest.mark.parametrize("text", ["3 mars 1800", "mr | ३ मार्च २२००", "2026年3月3日", "en | 3/3/2026"])
def test_a_year_counts_in_any_digits(text: str) -> None:
    assert why_no_date(text) is None


@pytest.mark.parametrize(
    ("text", "right"),
    [("2026-03-03", True), ("2024-02-29", True), ("2026-02-29", False), ("20260303", False), ("", False)],
)
def test_a_translation_is_a_day_of_the_calendar(text: str, right: bool) -> None:
    assert is_date(text) is right
    check = output_check({"dates": {}})
    assert check is not None and (check(text) is None) is right


def test_texts_are_checked_where_the_corpus_has_a_form() -> None:
    assert input_check({"dates": {}}) is why_no_date
    assert input_check({"text": {}}) is output_check({"text": {}}) is None
