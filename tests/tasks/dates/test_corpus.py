import os
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from datetime import date

import pytest

from attent.errors import ArgumentError
from attent.tasks.dates import HELD_OUT_COMBINATIONS, HELD_OUT_DATES, DatesSettings, dates
from attent.tasks.dates.corpus import DEMO, FIELDS, gold_links, target_words, words
from attent.text.text import Pair, TranslationCorpus

SETTINGS = DatesSettings(training_pairs=30_011, validation_pairs=503, held_out_dates=1009, held_out_pairs=997)


@pytest.fixture(scope="module")
def corpus() -> TranslationCorpus:
    return dates(SETTINGS)


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


def test_the_sets_have_the_sizes_asked_for(corpus: TranslationCorpus) -> None:
    assert list(corpus.held_out) == ["held-out dates", "held-out combinations"]
    assert {name: len(pairs) for name, pairs in sets(corpus).items()} == {
        "train": 30_011,
        "validation": 503,
        HELD_OUT_DATES: 997,
        HELD_OUT_COMBINATIONS: 997,
    }
    for pairs in corpus.held_out.values():
        assert len({pair.source for pair in pairs}) == len(pairs)


def test_targets_are_dates_of_four_centuries(corpus: TranslationCorpus) -> None:
    years = Counter(date.fromisoformat(pair.target).year for pairs in sets(corpus).values() for pair in pairs)
    assert min(years) == 1800
    assert max(years) == 2200
    assert len(years) == 401


def test_no_date_is_in_two_parts(corpus: TranslationCorpus) -> None:
    train, validation, *tests = ({pair.target for pair in pairs} for pairs in sets(corpus).values())
    assert not train & validation
    assert all(not (train | validation) & test for test in tests)


def test_training_never_shows_a_held_out_combination(corpus: TranslationCorpus) -> None:
    held_out = {tag for tag, _ in map(split, corpus.held_out[HELD_OUT_COMBINATIONS])}
    # eleven locales of the demo spell the month out in letters, and one of them gives two
    assert held_out == set(DEMO) - {"ja", "ko", "zh"}
    displayed = {
        (tag, shape(text))
        for pairs in (corpus.train, corpus.validation, corpus.held_out[HELD_OUT_DATES])
        for tag, text in map(split, pairs)
    }
    for tag, text in map(split, corpus.held_out[HELD_OUT_COMBINATIONS]):
        assert tag
        assert (tag, shape(text)) not in displayed
        assert ("", shape(text)) not in displayed


def test_every_word_of_a_held_out_combination_is_in_training_in_its_locale(corpus: TranslationCorpus) -> None:
    names_by_key: dict[str, set[str]] = {locale: set() for locale in ["", *DEMO]}
    for tag, text in map(split, corpus.train):
        names_by_key[tag] |= words(text)
    for tag, text in map(split, corpus.held_out[HELD_OUT_COMBINATIONS]):
        assert words(text) <= names_by_key[tag]


def test_every_locale_is_trained_alike(corpus: TranslationCorpus) -> None:
    tags = Counter(tag for tag, _ in map(split, corpus.train))
    assert set(tags) == {"", *DEMO}
    assert min(tags.values()) > 1000
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


def test_links_by_hand(corpus: TranslationCorpus) -> None:
    pair = next(pair for pair in corpus.train if re.fullmatch(r"fr \| mardi \d mars \d{4}", pair.source))
    day = [(11, target) for target in (8, 9)]
    month = [(source, target) for source in range(13, 17) for target in (5, 6)]
    year = [(source, target) for source in range(18, 22) for target in range(4)]
    assert list(pair.links) == day + month + year


def test_the_same_settings_give_the_same_pairs_in_every_process(
    small: DatesSettings, small_corpus: TranslationCorpus
) -> None:
    code = """import sys; sys.path[:0] = sys.argv[2:]
from attent.tasks.dates import DatesSettings, dates
corpus = dates(DatesSettings.model_validate_json(sys.argv[1]))
print(hash("a"), ascii([corpus.train, corpus.validation, corpus.held_out]))"""
    command = [sys.executable, "-c", code, small.model_dump_json(), *sys.path]
    process = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": "1"}
    )
    number, pairs = process.stdout.split(" ", 1)
    assert int(number) != hash("a")
    assert pairs.strip() == ascii([small_corpus.train, small_corpus.validation, small_corpus.held_out])


def test_the_seed_decides_and_more_training_pairs_leave_the_rest_alone(
    small: DatesSettings, small_corpus: TranslationCorpus
) -> None:
    more = dates(small.model_copy(update={"training_pairs": 223}))
    assert more.held_out == small_corpus.held_out
    assert more.train[:211] == small_corpus.train
    assert dates(small.model_copy(update={"seed": 6})).train != small_corpus.train


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"held_out_combinations": 50}, "at most 6 for these locales, got 50"),
        ({"held_out_dates": 2, "held_out_pairs": 1000}, "held_out_pairs must be at most about"),
    ],
)
def test_what_cannot_be_had_is_an_error(small: DatesSettings, change: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        dates(small.model_copy(update=change))


ISO = "2026-03-03"


def pair(source: str, **fields: str) -> Pair:
    """A pair whose fields are these parts of the source."""
    spans = [range(start := source.index(fields[name]), start + len(fields[name])) for name in ("year", "month", "day")]
    return Pair(
        source, ISO, tuple((s, t) for span, field in zip(spans, FIELDS, strict=True) for s in span for t in field)
    )


YEAR_AT_6 = {(6, 0), (7, 1), (8, 2), (9, 3)}


def test_worked_by_hand() -> None:
    gold = gold_links(pair("3 mar 2026", year="2026", month="mar", day="3"))
    # the day's only digit is its last; a month in letters has no sure link
    assert gold.sure == YEAR_AT_6 | {(0, 9)}
    assert gold.possible - gold.sure == (
        {(s, t) for s in range(6, 10) for t in range(4)} - YEAR_AT_6
        | {(s, t) for s in (2, 3, 4) for t in (5, 6)}
        | {(0, 8)}
    )


def test_digits_that_are_written_out_are_sure_in_any_script() -> None:
    for source in ("04/03/2026", "٠٤/٠٣/٢٠٢٦"):
        gold = gold_links(pair(source, year=source[6:], month=source[3:5], day=source[:2]))
        assert gold.sure == YEAR_AT_6 | {(3, 5), (4, 6), (0, 8), (1, 9)}


def test_a_numbered_month_may_have_its_word_beside_it() -> None:
    gold = gold_links(pair("2026年3月3日", year="2026", month="3月", day="3"))
    assert (5, 6) in gold.sure
    assert {(5, 5), (6, 5), (6, 6)} <= gold.possible - gold.sure


def test_hyphens_are_no_words() -> None:
    assert target_words(ISO) == [0, 1, 2, 3, None, 5, 6, None, 8, 9]


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
