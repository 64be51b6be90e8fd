"""Patterns in which a locale writes dates, with the positions of the fields in the text.

Source: Unicode CLDR through Babel: the four standard styles and the skeletons of a locale, as patterns of UTS #35, part
4, "Date Format Patterns". Patterns are formatted field by field, which gives the span of each field.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple

from attent.errors import ArgumentError, check_known

if TYPE_CHECKING:
    from babel import Locale

FIRST_YEAR, LAST_YEAR = 1800, 2200
ALL_DATES = range(date(FIRST_YEAR, 1, 1).toordinal(), date(LAST_YEAR, 12, 31).toordinal() + 1)

# the index of each field of a date in a Moment; 0 is for text between the fields
LITERAL, YEAR, MONTH, DAY, WEEKDAY = range(5)
FIELDS = {"y": YEAR, "M": MONTH, "L": MONTH, "d": DAY, "E": WEEKDAY, "c": WEEKDAY}
LEAP_YEAR, FIRST_MONDAY = 2000, 3
NO_WEEKDAY = 7
# Month and day from 0, of a leap year.
DAYS = tuple((month, day) for month in range(12) for day in range(monthrange(LEAP_YEAR, month + 1)[1]))

# The zeros of CLDR's numbering systems that Babel's locales write by default: the ten digits are consecutive
# characters. Babel names a locale's system (`Locale.default_numbering_system`), but prints dates in Latin digits.
# Source: Unicode CLDR, common/supplemental/numberingSystems.xml (type "numeric").
LATIN = "latn"

ZEROS = {
    "latn": 0x0030,
    "arab": 0x0660,
    "arabext": 0x06F0,
    "nkoo": 0x07C0,
    "deva": 0x0966,
    "beng": 0x09E6,
    "tibt": 0x0F20,
    "mymr": 0x1040,
    "olck": 0x1C50,
    "mtei": 0xABF0,
    "cakm": 0x11136,
    "hmnp": 0x1E140,
    "adlm": 0x1E950,
}

Part = tuple[int, tuple[str, ...]]
Span = tuple[int, int]


class Moment(NamedTuple):
    """Indices of a date into the tables of a pattern's parts: 0 for literals, then the fields."""

    literal: int
    year: int
    month: int
    day: int
    weekday: int


class Reading(NamedTuple):
    """A day that a text can mean: month and day from 0, the day of the week from Monday = 0, or NO_WEEKDAY."""

    month: int
    day: int
    weekday: int


Ambiguous = Mapping[str, frozenset[Reading]]


class WrittenDate(NamedTuple):
    """A date as text, and the spans [begin, end) of its year, month and day."""

    text: str
    year: Span
    month: Span
    day: Span


def moment(day: date) -> Moment:
    """Convert a date to indices into the tables of a pattern's parts."""
    return Moment(0, day.year - FIRST_YEAR, day.month - 1, day.day - 1, day.weekday())


@dataclass(frozen=True, slots=True, eq=False)
class DatePattern:
    """A pattern in which a locale writes dates.

    Args:
        locale: Babel's name of the locale.
        pattern: the CLDR pattern, such as "d MMMM y".
        names: the locale's styles and skeletons with this pattern, or with another that always gives the same text.
        parts: the parts of the text from left to right: the field, and its text for each value.
        native_parts: the parts with numbers in the locale's own digits; None if those are the Latin ones.
    """

    locale: str
    pattern: str
    names: tuple[str, ...]
    parts: tuple[Part, ...]
    native_parts: tuple[Part, ...] | None

    def text(self, when: Moment, *, native: bool = False) -> str:
        """Format a date, in Latin digits or in the locale's own."""
        return "".join([table[when[field]] for field, table in self._parts(native)])

    def write(self, when: Moment, *, native: bool = False) -> WrittenDate:
        """Format a date, with the spans of its fields."""
        pieces: list[str] = []
        spans: list[Span] = [(0, 0)] * 5
        end = 0
        for field, table in self._parts(native):
            piece = table[when[field]]
            start, end = end, end + len(piece)
            spans[field] = (start, end)
            pieces.append(piece)
        return WrittenDate("".join(pieces), spans[YEAR], spans[MONTH], spans[DAY])

    @property
    def has_weekday(self) -> bool:
        """True if the text names the day of the week."""
        return any(field == WEEKDAY for field, _ in self.parts)

    @property
    def spells_month(self) -> bool:
        """True if every month is written in letters, without digits."""
        names = next(table for field, table in self.parts if field == MONTH)
        return all(any(c.isalpha() for c in name) and not any(c.isdecimal() for c in name) for name in names)

    def _parts(self, native: bool) -> tuple[Part, ...]:
        parts = self.native_parts if native else self.parts
        assert parts is not None
        return parts


def date_patterns(locale: str) -> list[DatePattern]:
    """Return the distinct patterns of a locale that write complete dates, the standard styles first.

    Patterns with two-digit years, with fields other than year, month, day and day of the week (such as the era), or
    with two adjacent numbers are left out. Patterns that write every date in the same way count as one.

    Args:
        locale: Babel's name of the locale.

    Raises:
        ArgumentError: the locale has no such pattern.
    """
    from babel import Locale

    babel_locale = Locale.parse(locale)
    system = babel_locale.default_numbering_system
    patterns: dict[tuple[str, ...], DatePattern] = {}
    for name, pattern in _named_patterns(babel_locale):
        parts = _parts(pattern, babel_locale)
        if parts is None:
            continue
        candidate = DatePattern(
            locale, pattern, (name,), parts, None if system == LATIN else _with_digits(parts, system)
        )
        texts = tuple(candidate.text(when) for when in sample_moments(candidate))
        previous = patterns.get(texts)
        patterns[texts] = candidate if previous is None else replace(previous, names=(*previous.names, name))
    if not patterns:
        raise ArgumentError(f"locale {locale!r} has no date pattern with the whole year, the month and the day")
    return list(patterns.values())


def sample_moments(pattern: DatePattern) -> list[Moment]:
    """Return moments that cover all words of a pattern: every month, day of the week and number of digits of the day.

    The day of the week is independent of the date, since only the words matter.
    """
    weekdays = range(7) if pattern.has_weekday else range(1)
    return [
        Moment(0, LEAP_YEAR - FIRST_YEAR, month, day - 1, weekday)
        for month in range(12)
        for weekday in weekdays
        for day in (5, 25)
    ]


def _named_patterns(locale: Locale) -> list[tuple[str, str]]:
    styles = [(style, str(locale.date_formats[style].pattern)) for style in ("full", "long", "medium", "short")]
    skeletons = sorted((name, str(value.pattern)) for name, value in locale.datetime_skeletons.items())
    return styles + skeletons


def _parts(pattern: str, locale: Locale) -> tuple[Part, ...] | None:
    from babel.dates import tokenize_pattern

    parts: list[Part] = []
    for kind, value in tokenize_pattern(pattern):
        if kind == "chars":
            parts.append((LITERAL, (str(value),)))
            continue
        letter, count = value
        # "yy" is ambiguous; "c" and "cc" are numbers; "ddd" is an ordinal (CLDR 49), which Babel writes as 003
        if letter not in FIELDS or (letter, count) in {("y", 2), ("c", 1), ("c", 2), ("d", 3)}:
            return None
        field = FIELDS[letter]
        parts.append((field, _field_texts(field, str(letter) * int(count), locale)))
    fields = [field for field, _ in parts if field != LITERAL]
    is_complete = {YEAR, MONTH, DAY} <= set(fields) and len(set(fields)) == len(fields)
    is_spelled = is_complete and all(text for _, table in parts for text in table)
    return tuple(parts) if is_spelled and not _has_adjacent_numbers(parts) else None


def _field_texts(field: int, letters: str, locale: Locale) -> tuple[str, ...]:
    from babel.dates import DateTimeFormat

    days = {
        YEAR: [date(year, 1, 1) for year in range(FIRST_YEAR, LAST_YEAR + 1)],
        MONTH: [date(LEAP_YEAR, month, 1) for month in range(1, 13)],
        DAY: [date(LEAP_YEAR, 1, day) for day in range(1, 32)],
        WEEKDAY: [date(LEAP_YEAR, 1, FIRST_MONDAY + weekday) for weekday in range(7)],
    }[field]
    return tuple(DateTimeFormat(day, locale)[letters] for day in days)


def _has_adjacent_numbers(parts: Sequence[Part]) -> bool:
    return any(
        any(text[-1].isdecimal() for text in left) and any(text[0].isdecimal() for text in right)
        for (_, left), (_, right) in pairwise(parts)
    )


def _with_digits(parts: tuple[Part, ...], system: str) -> tuple[Part, ...]:
    # digits inside names are left unchanged
    return tuple(
        (field, tuple(in_digits(text, system) for text in table) if table[0].isdecimal() else table)
        for field, table in parts
    )


def digits(system: str) -> str:
    """Return the ten digits of a numbering system, zero first.

    Args:
        system: its CLDR name, such as "deva".

    Raises:
        UnknownNameError: the system is unknown.
    """
    check_known("numbering system", system, ZEROS)
    return "".join(chr(ZEROS[system] + value) for value in range(10))


def in_digits(number: str, system: str) -> str:
    """Convert a number from Latin digits to those of a system."""
    return number.translate(dict(zip(map(ord, digits(LATIN)), digits(system), strict=True)))


def leap_year_text(pattern: DatePattern, when: Moment, *, native: bool) -> str:
    """Write a date with the leap year 2000 in place of its own year."""
    return pattern.text(when._replace(year=LEAP_YEAR - FIRST_YEAR), native=native)


def texts_with_readings(pattern: DatePattern) -> Iterable[tuple[str, Reading]]:
    """Yield all texts of a pattern in one leap year, in each kind of digits, with their readings.

    The year is the only number of four digits in a text, and no pattern has two adjacent numbers. So two texts with the
    same year are equal if and only if they are equal with any other year, and the texts of one leap year, with every
    day of the week, suffice to find the dates that a text can mean.
    """
    weekdays = range(7) if pattern.has_weekday else (NO_WEEKDAY,)
    for native, (month, day), weekday in product((False, True) if pattern.native_parts else (False,), DAYS, weekdays):
        when = Moment(0, LEAP_YEAR - FIRST_YEAR, month, day, weekday % NO_WEEKDAY)
        yield pattern.text(when, native=native), Reading(month, day, weekday)


def ambiguous_texts(patterns: Iterable[DatePattern]) -> Ambiguous:
    """Return the texts that the patterns write for more than one day, with these days."""
    first: dict[str, Reading] = {}
    readings_of: dict[str, set[Reading]] = {}
    for pattern in patterns:
        for text, reading in texts_with_readings(pattern):
            previous = first.setdefault(text, reading)
            if previous != reading:
                readings_of.setdefault(text, {previous}).add(reading)
    return {
        text: frozenset(readings)
        for text, readings in readings_of.items()
        if len({reading[:2] for reading in readings}) > 1
    }


def means_one_date(text: str, year: int, table: Ambiguous) -> bool:
    """Return whether a text means a single date in its year.

    Args:
        text: the text with the year 2000 in place of its own; see `leap_year_text`.
        year: its own year, in which some days do not exist and the days of the week are fixed.
        table: the ambiguous texts of all patterns that could write it.
    """
    return len({reading[:2] for reading in table.get(text, ()) if _exists(reading, year)}) <= 1


def _exists(reading: Reading, year: int) -> bool:
    try:
        day = date(year, reading.month + 1, reading.day + 1)
    except ValueError:
        return False
    return reading.weekday in (NO_WEEKDAY, day.weekday())
