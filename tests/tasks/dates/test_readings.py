from collections import defaultdict
from datetime import date, timedelta
from functools import cache

import pytest

from attent.tasks.dates.patterns import (
    Ambiguous,
    Reading,
    ambiguous_texts,
    date_patterns,
    leap_year_text,
    means_one_date,
    moment,
)

# day first and month first, the same names of days, neighbouring languages, numbers in names, digits of their own
LOCALES = ("en", "en_GB", "hr", "vi", "fa", "mt")


@pytest.mark.parametrize("year", [2023, 2024])
def test_a_text_means_one_date_exactly_if_no_other_date_is_written_so(year: int) -> None:
    patterns = [pattern for locale in LOCALES for pattern in date_patterns(locale)]
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


def test_by_hand() -> None:
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
