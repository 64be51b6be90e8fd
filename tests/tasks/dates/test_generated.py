from pathlib import Path

import pytest
from babel import localedata
from pydantic import ValidationError

from attent.errors import ArgumentError, RunError
from attent.tasks.dates import DatesSettings
from attent.tasks.dates.corpus import DEMO, FULL, gold_links
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


def test_a_text_without_a_whole_year_is_no_date(small_corpus: TranslationCorpus) -> None:
    assert [pair.source for pair in small_corpus.train if why_no_date(pair.source)] == []
    for text in ("3 mars 1800", "mr | ३ मार्च २२००", "2026年3月3日", "en | 3/3/2026"):
        assert why_no_date(text) is None
    for text in ("banana", "", "fr | mardi 3 mars 26", "3 mars 1799", "3 mars 2201", "20260303", "fr | 3 mars 20 26"):
        assert why_no_date(text) == f"{text!r} has no four-digit year from 1800 to 2200"
    assert input_check({"dates": {}}) is why_no_date
    assert input_check({"text": {}}) is output_check({"text": {}}) is None


def test_a_translation_is_a_day_of_the_calendar(small_corpus: TranslationCorpus) -> None:
    assert all(is_date(pair.target) for pair in small_corpus.train)
    check = output_check({"dates": {}})
    assert check is not None
    days = {"2026-03-03": True, "2024-02-29": True, "2026-02-29": False, "20260303": False, "": False}
    for text, right in days.items():
        assert is_date(text) is (check(text) is None) is right


def test_the_default_is_the_demo() -> None:
    assert DatesSettings().locale_names == DEMO
    assert DatesSettings(locales="full").locale_names == FULL
    assert DatesSettings.model_validate({"locales": ["fr", "de"]}).locale_names == ("fr", "de")
    assert len(set(DEMO)) == len(DEMO) == 14
    assert len(set(FULL)) == len(FULL) == 62
    assert set(DEMO) < set(FULL) <= set(localedata.locale_identifiers())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"locales": ["frr_XX"]}, "unknown locale 'frr_XX'; did you mean 'fr"),
        ({"locales": ["fr", "fr"]}, "distinct"),
        ({"locales": []}, "at least one"),
        ({"locales": "all"}, "'demo' or 'full'"),
        ({"untagged": 1.5}, "less than or equal to 1"),
        ({"training_pairs": 0}, "greater than or equal to 1"),
        ({"training_pairs": 10**30}, "less than or equal to 100000000"),
        ({"held_out_dates": 145_000, "validation_pairs": 1462}, "below the 146462 dates there are, got 146462"),
        ({"pairs": 5}, "Extra inputs"),
    ],
)
def test_a_wrong_setting_says_what_is_wrong(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DatesSettings.model_validate(arguments)
