"""The ways in which a locale writes a date, and where in the text the fields of the date stand.

Source: Unicode CLDR through Babel: the four standard styles and the skeletons of a locale, as patterns of UTS #35, part 4,
"Date Format Patterns". Every pattern is written out field by field here, so that the span of each field is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from typing import NamedTuple

from babel import Locale
from babel.dates import DateTimeFormat, tokenize_pattern

from attent.data.dates.numerals import LATIN, in_digits
from attent.errors import ArgumentError

FIRST_YEAR, LAST_YEAR = 1800, 2200
ALL_DATES = range(date(FIRST_YEAR, 1, 1).toordinal(), date(LAST_YEAR, 12, 31).toordinal() + 1)

# the places of a date's fields in a Moment; 0 is for text between the fields
LITERAL, YEAR, MONTH, DAY, WEEKDAY = range(5)
FIELDS = {"y": YEAR, "M": MONTH, "L": MONTH, "d": DAY, "E": WEEKDAY, "c": WEEKDAY}
LEAP_YEAR, FIRST_MONDAY = 2000, 3

Part = tuple[int, tuple[str, ...]]
Span = tuple[int, int]


class Moment(NamedTuple):
    """What of a date can be written: index 0 of every literal, then the fields as indices into their tables."""

    literal: int
    year: int
    month: int
    day: int
    weekday: int


class Written(NamedTuple):
    """A date as text, and the characters [first, last) that hold its year, its month and its day."""

    text: str
    year: Span
    month: Span
    day: Span


def moment(day: date) -> Moment:
    """A date as indices into the tables of a pattern's parts."""
    return Moment(0, day.year - FIRST_YEAR, day.month - 1, day.day - 1, day.weekday())


@dataclass(frozen=True, slots=True, eq=False)
class DatePattern:
    """One way in which a locale writes a date.

    Args:
        locale: Babel's name of the locale.
        pattern: the CLDR pattern, such as "d MMMM y".
        names: the styles and skeletons under which the locale has this pattern, or another that always writes the same.
        parts: the pieces of the text from left to right: which field, and what is written for each value of it.
        native_parts: the same with the numbers in the locale's own digits; None where those are the Latin ones.
    """

    locale: str
    pattern: str
    names: tuple[str, ...]
    parts: tuple[Part, ...]
    native_parts: tuple[Part, ...] | None

    def text(self, when: Moment, *, native: bool = False) -> str:
        """The date as this pattern writes it, in Latin or in the locale's own digits."""
        return "".join([table[when[field]] for field, table in self._parts(native)])

    def write(self, when: Moment, *, native: bool = False) -> Written:
        """The date as text, with the spans of its fields."""
        pieces: list[str] = []
        spans: list[Span] = [(0, 0)] * 5
        end = 0
        for field, table in self._parts(native):
            piece = table[when[field]]
            start, end = end, end + len(piece)
            spans[field] = (start, end)
            pieces.append(piece)
        return Written("".join(pieces), spans[YEAR], spans[MONTH], spans[DAY])

    @property
    def has_weekday(self) -> bool:
        """Whether the text names the day of the week."""
        return any(field == WEEKDAY for field, _ in self.parts)

    @property
    def spells_month(self) -> bool:
        """Whether the month is written in letters alone, in every month."""
        names = next(table for field, table in self.parts if field == MONTH)
        return all(any(c.isalpha() for c in name) and not any(c.isdecimal() for c in name) for name in names)

    def _parts(self, native: bool) -> tuple[Part, ...]:
        if not native:
            return self.parts
        assert self.native_parts is not None
        return self.native_parts


def date_patterns(locale: str) -> list[DatePattern]:
    """The patterns of a locale whose text holds the whole date, each once, the standard styles first.

    Left out are two-digit years, fields other than year, month, day and day of the week (such as the era), and patterns
    in which two numbers touch. Patterns that write every date the same count as one.

    Args:
        locale: Babel's name of the locale.

    Raises:
        ArgumentError: the locale has no such pattern.
    """
    babel_locale = Locale.parse(locale)
    system = babel_locale.default_numbering_system
    found: dict[tuple[str, ...], DatePattern] = {}
    for name, pattern in _named_patterns(babel_locale):
        parts = _parts(pattern, babel_locale)
        if parts is None:
            continue
        this = DatePattern(locale, pattern, (name,), parts, None if system == LATIN else _with_digits(parts, system))
        texts = tuple(this.text(when) for when in sample(this))
        known = found.get(texts)
        found[texts] = this if known is None else replace(known, names=(*known.names, name))
    if not found:
        raise ArgumentError(f"locale {locale!r} has no date pattern with the whole year, the month and the day")
    return list(found.values())


def sample(pattern: DatePattern) -> list[Moment]:
    """Moments that show all that a pattern can write: every month, day of the week and number of digits of the day.

    The day of the week runs free of the date, since only the words matter.
    """
    weekdays = range(7) if pattern.has_weekday else range(1)
    return [Moment(0, LEAP_YEAR - FIRST_YEAR, month, day - 1, weekday) for month in range(12) for weekday in weekdays for day in (5, 25)]


def _named_patterns(locale: Locale) -> list[tuple[str, str]]:
    styles = [(style, str(locale.date_formats[style].pattern)) for style in ("full", "long", "medium", "short")]
    skeletons = sorted((name, str(value.pattern)) for name, value in locale.datetime_skeletons.items())
    return styles + skeletons


def _parts(pattern: str, locale: Locale) -> tuple[Part, ...] | None:
    parts: list[Part] = []
    for kind, value in tokenize_pattern(pattern):
        if kind == "chars":
            parts.append((LITERAL, (str(value),)))
            continue
        letter, count = value
        # "yy" has no answer; "c" and "cc" are numbers
        if letter not in FIELDS or (letter, count) in {("y", 2), ("c", 1), ("c", 2)}:
            return None
        field = FIELDS[letter]
        parts.append((field, _field_texts(field, str(letter) * int(count), locale)))
    fields = [field for field, _ in parts if field != LITERAL]
    if not {YEAR, MONTH, DAY} <= set(fields) or len(set(fields)) != len(fields):
        return None
    if any(not text for _, table in parts for text in table) or _numbers_touch(parts):
        return None
    return tuple(parts)


def _field_texts(field: int, letters: str, locale: Locale) -> tuple[str, ...]:
    days = {
        YEAR: [date(year, 1, 1) for year in range(FIRST_YEAR, LAST_YEAR + 1)],
        MONTH: [date(LEAP_YEAR, month, 1) for month in range(1, 13)],
        DAY: [date(LEAP_YEAR, 1, day) for day in range(1, 32)],
        WEEKDAY: [date(LEAP_YEAR, 1, FIRST_MONDAY + weekday) for weekday in range(7)],
    }[field]
    return tuple(DateTimeFormat(day, locale)[letters] for day in days)


def _numbers_touch(parts: Sequence[Part]) -> bool:
    for (_, left), (_, right) in pairwise(parts):
        if any(text[-1].isdecimal() for text in left) and any(text[0].isdecimal() for text in right):
            return True
    return False


def _with_digits(parts: tuple[Part, ...], system: str) -> tuple[Part, ...]:
    # digits inside names stay as the locale has them
    return tuple((field, tuple(in_digits(text, system) for text in table) if table[0].isdecimal() else table) for field, table in parts)
