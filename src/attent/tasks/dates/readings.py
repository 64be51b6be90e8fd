"""Dates that a text can mean, by writing all texts of the patterns.

The year is the only number of four digits in a text, and no pattern has two adjacent numbers. So two texts with the
same year are equal exactly if they are equal with any other year, and it suffices to write every day of one leap year,
with every day of the week, in every pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import NamedTuple

from attent.tasks.dates.patterns import FIRST_YEAR, LEAP_YEAR, DatePattern, Moment

NO_WEEKDAY = 7
DAYS = tuple(
    (month, day) for month, last in enumerate((31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)) for day in range(last)
)


class Reading(NamedTuple):
    """A day that a text can mean: month and day from 0, the day of the week from Monday = 0, or NO_WEEKDAY."""

    month: int
    day: int
    weekday: int


Ambiguous = Mapping[str, frozenset[Reading]]


def key(pattern: DatePattern, when: Moment, *, native: bool) -> str:
    """Write a date with the leap year 2000 in place of its own year."""
    return pattern.text(when._replace(year=LEAP_YEAR - FIRST_YEAR), native=native)


def keys(pattern: DatePattern) -> Iterable[tuple[str, Reading]]:
    """Write all texts of a pattern in one year, in each kind of digits, with their readings."""
    weekdays = range(7) if pattern.has_weekday else (NO_WEEKDAY,)
    for native in (False, True) if pattern.native_parts else (False,):
        for month, day in DAYS:
            for weekday in weekdays:
                when = Moment(0, LEAP_YEAR - FIRST_YEAR, month, day, weekday % NO_WEEKDAY)
                yield pattern.text(when, native=native), Reading(month, day, weekday)


def ambiguous(patterns: Iterable[DatePattern]) -> Ambiguous:
    """Return the texts that the patterns write for different days, with these days."""
    first: dict[str, Reading] = {}
    readings_of: dict[str, set[Reading]] = {}
    for pattern in patterns:
        for text, reading in keys(pattern):
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
        text: the text with the year 2000 in place of its own, see `key`.
        year: its own year, in which some days do not exist and the days of the week are fixed.
        table: the ambiguous texts of all patterns that could write it.
    """
    dates = {reading[:2] for reading in table.get(text, ()) if _exists(reading, year)}
    return len(dates) <= 1


def _exists(reading: Reading, year: int) -> bool:
    try:
        day = date(year, reading.month + 1, reading.day + 1)
    except ValueError:
        return False
    return reading.weekday in (NO_WEEKDAY, day.weekday())
