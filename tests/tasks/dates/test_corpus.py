import re
import unicodedata
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from babel import localedata
from pydantic import ValidationError

from attent.errors import ArgumentError, DataError, RunError
from attent.tasks.dates import HELD_OUT_COMBINATIONS, HELD_OUT_DATES, DatesSettings, dates
from attent.tasks.dates.corpus import DEMO, FIELDS, FULL, gold_links, target_words, words
from attent.tasks.dates.generated import (
    held_out_digest,
    input_check,
    is_date,
    output_check,
    regenerate,
    why_no_date,
)
from attent.text.text import Pair, TranslationCorpus

SETTINGS = DatesSettings(training_pairs=15_011, validation_pairs=503, held_out_dates=1009, held_out_pairs=997)


@pytest.fixture(scope="module")
def corpus() -> TranslationCorpus:
    return dates(SETTINGS)


@pytest.fixture(scope="module")
def small() -> DatesSettings:
    few = {"training_pairs": 211, "validation_pairs": 13, "held_out_dates": 17, "held_out_pairs": 19}
    return DatesSettings(locales=("fr", "de", "fa"), held_out_combinations=2, seed=5, **few)


@pytest.fixture(scope="module")
def small_corpus(small: DatesSettings) -> TranslationCorpus:
    return dates(small)


def sets(corpus: TranslationCorpus) -> dict[str, list[Pair]]:
    return {"train": list(corpus.train), "validation": list(corpus.validation)} | {
        name: list(pairs) for name, pairs in corpus.held_out.items()
    }


def split(pair: Pair) -> tuple[str, str]:
    tag, _, text = pair.source.rpartition(" | ")
    return tag, text


def shape(text: str) -> str:
    """The text with the zero of its own script for every digit."""
    return re.sub(r"\d", lambda digit: chr(ord(digit[0]) - int(digit[0])), text)


def test_the_sets_have_the_sizes_asked_for_and_no_date_in_common(corpus: TranslationCorpus) -> None:
    assert {name: len(pairs) for name, pairs in sets(corpus).items()} == {
        "train": 15_011, "validation": 503, HELD_OUT_DATES: 997, HELD_OUT_COMBINATIONS: 997
    }  # fmt: skip
    for pairs in corpus.held_out.values():
        assert len({pair.source for pair in pairs}) == len(pairs)
    train, validation, *tests = ({pair.target for pair in pairs} for pairs in sets(corpus).values())
    assert not train & validation
    assert all(not (train | validation) & test for test in tests)
    years = {date.fromisoformat(target).year for target in train}
    assert years == {*range(1800, 2201)}


def test_training_has_every_word_of_a_held_out_combination_and_never_shows_one(corpus: TranslationCorpus) -> None:
    held_out = [split(pair) for pair in corpus.held_out[HELD_OUT_COMBINATIONS]]
    # eleven locales of the demo spell the month out in letters, and one of them gives two
    assert {tag for tag, _ in held_out} == set(DEMO) - {"ja", "ko", "zh"}
    displayed = {
        (tag, shape(text))
        for pairs in (corpus.train, corpus.validation, corpus.held_out[HELD_OUT_DATES])
        for tag, text in map(split, pairs)
    }
    trained: dict[str, set[str]] = {locale: set() for locale in ["", *DEMO]}
    for tag, text in map(split, corpus.train):
        trained[tag] |= words(text)
    for tag, text in held_out:
        assert words(text) <= trained[tag]
        assert not {(tag, shape(text)), ("", shape(text))} & displayed


def test_every_locale_is_trained_alike(corpus: TranslationCorpus) -> None:
    tags = Counter(tag for tag, _ in map(split, corpus.train))
    assert set(tags) == {"", *DEMO}
    assert min(tags.values()) > 500
    assert abs(tags[""] / len(corpus.train) - SETTINGS.untagged) < 0.01


def test_links_read_back_as_the_date(corpus: TranslationCorpus) -> None:
    for pair in (*corpus.train[:3000], *corpus.held_out[HELD_OUT_COMBINATIONS]):
        assert len(set(pair.links)) == len(pair.links)
        fields = [
            {tuple(source for source, target in pair.links if target == column) for column in columns}
            for columns in ((0, 1, 2, 3), (5, 6), (8, 9))
        ]
        # all the characters of a field have the same links
        assert all(len(field) == 1 for field in fields)
        year, month, day = ("".join(pair.source[index] for index in min(field)) for field in fields)
        when = date.fromisoformat(pair.target)
        assert (int(year), int(day)) == (when.year, when.day)
        assert month.isalpha() or unicodedata.category(month[-1]) != "Nd" or int(re.sub(r"\D", "", month)) == when.month
        assert len(pair.links) == 4 * len(year) + 2 * len(month) + 2 * len(day)


def test_more_training_pairs_leave_the_rest_alone(small: DatesSettings, small_corpus: TranslationCorpus) -> None:
    more = dates(small.model_copy(update={"training_pairs": 223}))
    assert more.held_out == small_corpus.held_out
    assert more.train[:211] == small_corpus.train


def test_without_untagged_texts_and_held_out_combinations(small: DatesSettings) -> None:
    corpus = dates(small.model_copy(update={"untagged": 0.0, "held_out_combinations": 0}))
    assert all(tag for tag, _ in map(split, corpus.train))
    assert len(corpus.held_out[HELD_OUT_COMBINATIONS]) == 0
    assert len(corpus.held_out[HELD_OUT_DATES]) == 19


def test_the_tag_goes_only_where_the_text_says_which_date_it_is(small: DatesSettings) -> None:
    settings = small.model_copy(update={"locales": ("en", "es"), "untagged": 1.0, "training_pairs": 5003})
    numbers = re.compile(r"(\d+)/(\d+)/\d{4}")
    counts = Counter()
    for pair in dates(settings).train:
        tag, text = split(pair)
        match = numbers.fullmatch(text)
        unclear = match is not None and match[1] != match[2] and max(int(match[1]), int(match[2])) <= 12
        # an untagged text must not be one that a held-out combination of the other locale writes either; here none is
        assert bool(tag) == unclear
        counts[bool(tag)] += 1
    assert min(counts.values()) > 100


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_locales_own_digits_have_their_share(small: DatesSettings, share: float) -> None:
    settings = small.model_copy(
        update={"locales": ("fa",), "held_out_combinations": 0, "native_digits": share, "training_pairs": 2003}
    )
    train = dates(settings).train
    own = sum(any("۰" <= character <= "۹" for character in pair.source) for pair in train)
    latin = sum(any("0" <= character <= "9" for character in pair.source) for pair in train)
    assert own + latin == len(train)
    assert own / len(train) == pytest.approx(share, abs=0.05 if 0 < share < 1 else 0)


def test_a_text_with_two_answers_in_its_own_locale_is_left_out(small: DatesSettings) -> None:
    # Maltese writes both dd/MM/y and M/d/y
    settings = small.model_copy(update={"locales": ("mt",), "held_out_combinations": 0, "training_pairs": 5003})
    matches = [re.fullmatch(r"(\d\d)/(\d\d)/\d{4}", split(pair)[1]) for pair in dates(settings).train]
    numbers = [(int(match[1]), int(match[2])) for match in matches if match]
    assert any(max(pair) > 12 for pair in numbers)
    assert not any(10 <= min(pair) < max(pair) <= 12 for pair in numbers)


def test_what_cannot_be_had_is_an_error(small: DatesSettings) -> None:
    for change, message in (
        ({"held_out_combinations": 50}, r"at most \d for these locales, got 50"),
        ({"held_out_dates": 2, "held_out_pairs": 1000}, "held_out_pairs must be at most about"),
    ):
        with pytest.raises(ArgumentError, match=message):
            dates(small.model_copy(update=change))


def pair(source: str, **fields: str) -> Pair:
    """A pair whose fields are these parts of the source."""
    links = []
    for name, columns in zip(("year", "month", "day"), FIELDS, strict=True):
        start = source.index(fields[name])
        links += [(index, column) for index in range(start, start + len(fields[name])) for column in columns]
    return Pair(source, "2026-03-03", tuple(links))


def test_gold_links_worked_by_hand() -> None:
    year = {(6, 0), (7, 1), (8, 2), (9, 3)}
    gold = gold_links(pair("3 mar 2026", year="2026", month="mar", day="3"))
    # the day's only digit is its last; a month in letters has no sure link
    assert gold.sure == year | {(0, 9)}
    month = {(s, t) for s in (2, 3, 4) for t in (5, 6)}
    assert gold.possible - gold.sure == {(s, t) for s in range(6, 10) for t in range(4)} - year | month | {(0, 8)}
    for source in ("04/03/2026", "٠٤/٠٣/٢٠٢٦"):
        gold = gold_links(pair(source, year=source[6:], month=source[3:5], day=source[:2]))
        assert gold.sure == year | {(3, 5), (4, 6), (0, 8), (1, 9)}
    # a month's number may have its word beside it
    gold = gold_links(pair("2026年3月3日", year="2026", month="3月", day="3"))
    assert (5, 6) in gold.sure
    assert {(5, 5), (6, 5), (6, 6)} <= gold.possible - gold.sure
    assert target_words("2026-03-03") == [0, 1, 2, 3, None, 5, 6, None, 8, 9]


def test_sure_links_join_equal_digits_and_every_link_stays_in_its_field(corpus: TranslationCorpus) -> None:
    for pairs in corpus.held_out.values():
        for item in pairs:
            gold = gold_links(item)
            assert gold.possible == set(item.links)
            assert gold.sure < gold.possible
            assert all(int(item.source[source]) == int(item.target[target]) for source, target in gold.sure)
            # four digits of the year, and at least the last one of the day
            assert {target for _, target in gold.sure} >= {0, 1, 2, 3, 9}
            assert {target for _, target in gold.possible} == {index for field in FIELDS for index in field}


def test_the_corpus_is_the_one_that_its_settings_make(small: DatesSettings, small_corpus: TranslationCorpus) -> None:
    corpus = regenerate(Path("run"), {"dates": small.model_dump(mode="json")})
    assert list(corpus.validation) == list(small_corpus.validation)
    assert corpus.held_out == small_corpus.held_out


def test_other_test_sets_than_in_training_are_an_error(small: DatesSettings, small_corpus: TranslationCorpus) -> None:
    table, digest = {"dates": small.model_dump(mode="json")}, held_out_digest(small_corpus.held_out)
    assert regenerate(Path("run"), table, digest).held_out == small_corpus.held_out
    with pytest.raises(DataError, match=r"the corpus of run has changed, .* Unicode CLDR, now \d+"):
        regenerate(Path("run"), {"dates": small.model_copy(update={"seed": 6}).model_dump(mode="json")}, digest)
    # the same pairs under another name, or in another set, are others
    first, second = small_corpus.held_out.values()
    assert len({digest, held_out_digest({"a": first, "b": second}), held_out_digest({"a": [*first, *second]})}) == 3


def test_a_corpus_in_files_is_not_generated() -> None:
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
