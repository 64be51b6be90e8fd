import unicodedata
from collections import defaultdict
from datetime import date, timedelta
from functools import cache
from itertools import product

import pytest
from babel import Locale, localedata
from babel.dates import format_date, format_skeleton

from attent.errors import ArgumentError, UnknownNameError
from attent.tasks.dates import patterns
from attent.tasks.dates.corpus import DEMO, FULL
from attent.tasks.dates.patterns import (
    ALL_DATES,
    ZEROS,
    Ambiguous,
    DatePattern,
    Reading,
    ambiguous_texts,
    date_patterns,
    digits,
    leap_year_text,
    means_one_date,
    moment,
    sample_moments,
)

STYLES = ("full", "long", "medium", "short")
# every month and every day of the week, both lengths of the day, both ends of the years
SOME_DAYS = [
    date(1800, 1, 1),
    date(2200, 12, 31),
    *(date(1993 + 17 * month, month + 1, 1 + 5 * month % 28) for month in range(12)),
]
NOT_LATIN = ("ar_EG", "fa", "mr", "bn", "ne", "my", "ckb", "dz", "nqo", "ff_Adlm")


def named(locale: str, name: str) -> DatePattern:
    return next(pattern for pattern in date_patterns(locale) if name in pattern.names)


# the demo and locales of other digits at once, the others with the slow tests
LOCALES = [
    pytest.param(locale, marks=() if locale in (*DEMO, *NOT_LATIN, "en_GB", "vi", "cs", "ta") else pytest.mark.slow)
    for locale in dict.fromkeys((*FULL, *NOT_LATIN))
]


@pytest.mark.parametrize("locale", LOCALES)
def test_every_text_is_the_one_that_babel_writes(locale: str) -> None:
    result = date_patterns(locale)
    for pattern in result:
        for name, day in product(pattern.names, SOME_DAYS):
            if name in STYLES:
                babel = format_date(day, name, locale)
            else:
                babel = format_skeleton(name, day, fuzzy=False, locale=locale)
            assert pattern.text(moment(day)) == babel, (name, day)
    # no two patterns write the same, and a sample has every word
    days = [date.fromordinal(ordinal) for ordinal in ALL_DATES[:: len(ALL_DATES) // 499]]
    assert len({tuple(pattern.text(moment(day)) for day in days) for pattern in result}) == len(result)
    for pattern in result:
        for field, table in pattern.parts:
            if field in (patterns.MONTH, patterns.WEEKDAY):
                assert {table[when[field]] for when in sample_moments(pattern)} == set(table)


@pytest.mark.parametrize("locale", LOCALES)
def test_the_spans_read_back_as_the_date(locale: str) -> None:
    names = Locale.parse(locale).months
    months = {
        (text, month)
        for context in ("format", "stand-alone")
        for width in ("wide", "abbreviated")
        for month, text in names[context][width].items()
    }
    for pattern in date_patterns(locale):
        assert pattern.native_parts or locale not in NOT_LATIN
        for day in SOME_DAYS:
            for native in (False, True) if pattern.native_parts else (False,):
                text, *spans = pattern.write(moment(day), native=native)
                assert text == pattern.text(moment(day), native=native)
                year, month, number = (text[slice(*span)] for span in spans)
                assert (len(year), int(year), int(number)) == (4, day.year, day.day)
                assert (month, day.month) in months or int(month) == day.month
                assert not native or not any(character in "0123456789" for character in text)


def test_by_hand() -> None:
    pattern = named("fr", "full")
    assert pattern.pattern == "EEEE d MMMM y"
    assert pattern.write(moment(date(2026, 3, 3))) == ("mardi 3 mars 2026", (13, 17), (8, 12), (6, 7))
    assert pattern.has_weekday
    assert named("mr", "yMd").text(moment(date(2026, 3, 14)), native=True) == "१४/३/२०२६"
    # years of two digits and eras are left out
    assert not any("short" in pattern.names for pattern in date_patterns("en"))
    assert not any(name in pattern.names for pattern in date_patterns("th") for name in ("full", "GyMMMd"))
    # patterns that write the same count once; in Arabic the short names of the months are the long ones
    assert {"medium", "yMMMd"} <= set(named("fr", "medium").names)
    assert named("ar_EG", "long") is not named("ar_EG", "full")
    assert {"long", "yMMMd"} <= set(named("ar_EG", "long").names)
    # a month with digits in its name is not spelled out
    spelled = {("fr", "full"): True, ("he", "long"): True, ("ko", "long"): False, ("vi", "long"): False}
    for (locale, name), is_spelled in (spelled | {("fr", "yMd"): False}).items():
        assert named(locale, name).spells_month is is_spelled


@pytest.mark.parametrize("pattern", ["d/M/yy", "MMMM y", "yMMdd", "d MMM y G", "c d M y", "MMMM ddd, y", "d.M.y (M)"])
def test_a_locale_without_a_usable_pattern_is_an_error(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "_named_patterns", lambda locale: [("short", pattern)])
    with pytest.raises(ArgumentError, match="'fr' has no date pattern"):
        date_patterns("fr")


def test_digits_have_the_values_0_to_9() -> None:
    for system in ZEROS:
        assert [unicodedata.decimal(digit) for digit in digits(system)] == list(range(10))
    with pytest.raises(UnknownNameError, match="did you mean 'deva'"):
        digits("devi")


@pytest.mark.slow
def test_every_default_system_of_babel_is_known() -> None:
    used = {Locale.parse(locale).default_numbering_system for locale in localedata.locale_identifiers()}
    assert used == set(ZEROS)


# day first and month first, the same names of days, neighbouring languages, numbers in names, digits of their own
AMBIGUOUS = ("en", "en_GB", "hr", "vi", "fa", "mt")


@pytest.mark.parametrize("year", [2023, 2024])
def test_a_text_means_one_date_exactly_if_no_other_date_is_written_so(year: int) -> None:
    patterns = [pattern for locale in AMBIGUOUS for pattern in date_patterns(locale)]
    table = ambiguous_texts(patterns)
    written: dict[str, set[date]] = defaultdict(set)
    answers: dict[str, set[bool]] = defaultdict(set)
    day = date(year, 1, 1)
    while day.year == year:
        for pattern in patterns:
            for native in (False, True) if pattern.native_parts else (False,):
                text = pattern.text(moment(day), native=native)
                written[text].add(day)
                answers[text].add(means_one_date(leap_year_text(pattern, moment(day), native=native), year, table))
        day += timedelta(days=1)
    assert all(answers[text] == {len(days) == 1} for text, days in written.items())
    assert {len(days) for days in written.values()} == {1, 2}


@cache
def table_of(*locales: str) -> Ambiguous:
    return ambiguous_texts(pattern for locale in locales for pattern in date_patterns(locale))


def means(locales: tuple[str, ...], locale: str, name: str, day: date) -> bool:
    pattern = next(pattern for pattern in date_patterns(locale) if name in pattern.names)
    return means_one_date(leap_year_text(pattern, moment(day), native=False), day.year, table_of(*locales))


def test_readings_by_hand() -> None:
    assert not means(("en", "es"), "es", "yMd", date(2026, 4, 3))
    assert means(("en", "es"), "es", "yMd", date(2026, 4, 14))
    assert means(("en", "es"), "es", "yMd", date(2026, 4, 4))
    assert means(("fr", "es"), "es", "yMd", date(2026, 4, 3))
    # "Sun, 11/10/2026" cannot be 10 November, a Tuesday
    assert means(("en", "en_GB"), "en_GB", "yMEd", date(2026, 10, 11))
    assert not means(("en", "en_GB"), "en_GB", "yMd", date(2026, 10, 11))


def test_the_year_rules_readings_out() -> None:
    leap_day = {"x": frozenset({Reading(1, 28, 7), Reading(2, 0, 7)})}
    assert not means_one_date("x", 2024, leap_day)
    assert means_one_date("x", 2023, leap_day)
    # 3 March 2026 is a Tuesday, 4 March a Wednesday
    tuesdays = {"x": frozenset({Reading(2, 2, 1), Reading(2, 3, 1)})}
    assert means_one_date("x", 2026, tuesdays)
    assert not means_one_date("x", 2026, {"x": frozenset({Reading(2, 2, 1), Reading(2, 3, 2)})})
