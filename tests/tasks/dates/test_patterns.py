import unicodedata
from datetime import date
from itertools import product

import pytest
from babel import Locale, localedata
from babel.dates import format_date, format_skeleton

from attent.errors import ArgumentError, UnknownNameError
from attent.tasks.dates import patterns
from attent.tasks.dates.corpus import DEMO, FULL
from attent.tasks.dates.patterns import ALL_DATES, ZEROS, DatePattern, date_patterns, digits, moment, sample_moments

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


@pytest.mark.parametrize("pattern", ["d/M/yy", "MMMM y", "yMMdd", "d MMM y G", "c d M y", "d.M.y (M)"])
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
