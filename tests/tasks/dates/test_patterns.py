import unicodedata
from datetime import date

import pytest
from babel import Locale, localedata
from babel.dates import format_date, format_skeleton

from attent.errors import ArgumentError, UnknownNameError
from attent.tasks.dates import patterns
from attent.tasks.dates.corpus import FULL
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


@pytest.mark.parametrize("locale", FULL)
def test_every_text_is_the_one_that_babel_writes(locale: str) -> None:
    for pattern in date_patterns(locale):
        for name in pattern.names:
            for day in SOME_DAYS:
                babel = (
                    format_date(day, name, locale)
                    if name in STYLES
                    else format_skeleton(name, day, fuzzy=False, locale=locale)
                )
                assert pattern.text(moment(day)) == babel, (name, day)


@pytest.mark.parametrize("locale", [*FULL, *NOT_LATIN])
def test_the_spans_read_back_as_the_date(locale: str) -> None:
    names = Locale.parse(locale).months
    months = {
        (text, month)
        for context in ("format", "stand-alone")
        for width in ("wide", "abbreviated")
        for month, text in names[context][width].items()
    }
    for pattern in date_patterns(locale):
        for day in SOME_DAYS:
            for native in (False, True) if pattern.native_parts else (False,):
                text, *spans = pattern.write(moment(day), native=native)
                assert text == pattern.text(moment(day), native=native)
                year, month, number = (text[slice(*span)] for span in spans)
                assert len(year) == 4
                assert int(year) == day.year
                assert int(number) == day.day
                assert (month, day.month) in months or int(month) == day.month


@pytest.mark.parametrize("locale", NOT_LATIN)
def test_the_locales_own_digits_are_there(locale: str) -> None:
    for pattern in date_patterns(locale):
        for day in SOME_DAYS:
            latin, native = pattern.write(moment(day)), pattern.write(moment(day), native=True)
            for field in ("year", "day"):
                number = native.text[slice(*getattr(native, field))]
                assert not number.isascii()
                assert int(number) == int(latin.text[slice(*getattr(latin, field))])
            assert native.text != latin.text
            assert not any(character in "0123456789" for character in native.text)


@pytest.mark.parametrize("locale", FULL)
def test_two_patterns_of_a_locale_differ_somewhere(locale: str) -> None:
    result = date_patterns(locale)
    days = [date.fromordinal(ordinal) for ordinal in ALL_DATES[:: len(ALL_DATES) // 997]]
    assert len({tuple(pattern.text(moment(day)) for day in days) for pattern in result}) == len(result)


@pytest.mark.parametrize("locale", FULL)
def test_a_sample_shows_every_word(locale: str) -> None:
    for pattern in date_patterns(locale):
        for field, table in pattern.parts:
            if field in (patterns.MONTH, patterns.WEEKDAY):
                assert {table[when[field]] for when in sample_moments(pattern)} == set(table)


def test_by_hand() -> None:
    pattern = named("fr", "full")
    assert pattern.pattern == "EEEE d MMMM y"
    assert pattern.write(moment(date(2026, 3, 3))) == ("mardi 3 mars 2026", (13, 17), (8, 12), (6, 7))
    assert pattern.has_weekday
    assert pattern.spells_month
    assert named("mr", "yMd").text(moment(date(2026, 3, 14)), native=True) == "१४/३/२०२६"


def test_two_digit_years_and_eras_are_left_out() -> None:
    assert not any("short" in pattern.names for pattern in date_patterns("en"))
    assert not any(name in pattern.names for pattern in date_patterns("th") for name in ("full", "GyMMMd"))


def test_patterns_that_write_the_same_count_once() -> None:
    assert {"medium", "yMMMd"} <= set(named("fr", "medium").names)
    # in Arabic the short names of the months are the long ones
    assert named("ar_EG", "long") is not named("ar_EG", "full")
    assert {"long", "yMMMd"} <= set(named("ar_EG", "long").names)


def test_a_month_with_digits_in_its_name_is_not_spelled_out() -> None:
    assert not named("ko", "long").spells_month
    assert not named("vi", "long").spells_month
    assert not named("fr", "yMd").spells_month
    assert named("he", "long").spells_month


@pytest.mark.parametrize("pattern", ["d/M/yy", "MMMM y", "yMMdd", "d MMM y G", "c d M y", "d.M.y (M)"])
def test_a_locale_without_a_usable_pattern_is_an_error(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "_named_patterns", lambda locale: [("short", pattern)])
    with pytest.raises(ArgumentError, match="'fr' has no date pattern"):
        date_patterns("fr")


def test_every_default_system_of_babel_is_known() -> None:
    used = {Locale.parse(locale).default_numbering_system for locale in localedata.locale_identifiers()}
    assert used == set(ZEROS)


@pytest.mark.parametrize("system", ZEROS)
def test_the_digits_have_the_values_0_to_9(system: str) -> None:
    assert [unicodedata.decimal(digit) for digit in digits(system)] == list(range(10))


def test_an_unknown_system_is_an_error_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'deva'"):
        digits("devi")
