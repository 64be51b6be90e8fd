from collections.abc import Sequence
from datetime import date, timedelta
from random import Random

import pytest

from attent.errors import ArgumentError
from attent.tasks.dates.corpus import DEMO, hold_out, words
from attent.tasks.dates.patterns import (
    DAY,
    LITERAL,
    MONTH,
    YEAR,
    DatePattern,
    date_patterns,
    moment,
)

# in fourteen months every month meets every day of the week
DAYS = [date(2025, 1, 1) + timedelta(days=days) for days in range(3 * 365)]


@pytest.mark.slow
def test_all_that_is_held_out_is_spelled_out_and_its_words_stay_in_training() -> None:
    demo = {locale: date_patterns(locale) for locale in DEMO}

    def texts(patterns: Sequence[DatePattern]) -> set[str]:
        return {pattern.text(moment(day)) for pattern in patterns for day in DAYS}

    for seed in (0, 5):
        held = hold_out(demo, 12, Random(seed))
        assert len(set(held)) == 12
        assert all(pattern.spells_month for pattern in held)
        for locale in {pattern.locale for pattern in held}:
            saved = texts([pattern for pattern in held if pattern.locale == locale])
            training = texts([pattern for pattern in demo[locale] if pattern not in held])
            assert {word for text in saved for word in words(text)} <= {
                w for text in training - saved for w in words(text)
            }
    with pytest.raises(ArgumentError, match=r"at most \d+ for these locales, got 86") as caught:
        hold_out(demo, 86, Random(0))
    maximum = int(str(caught.value).split("at most ")[1].split()[0])
    assert len(hold_out(demo, maximum, Random(0))) == maximum


def test_a_word_found_nowhere_else_keeps_its_pattern_in_training() -> None:
    single = {"fr": [pattern for pattern in date_patterns("fr") if "long" in pattern.names]}
    assert hold_out(single, 0, Random(0)) == []
    with pytest.raises(ArgumentError, match="at most 0 for these locales, got 1"):
        hold_out(single, 1, Random(0))


def test_a_word_that_another_pattern_writes_in_the_same_text_only_is_not_in_training() -> None:
    digits, years = tuple(str(day) for day in range(1, 32)), tuple(str(year) for year in range(1800, 2201))

    def pattern(months: str, *, year_first: bool = False) -> DatePattern:
        parts = (DAY, digits), (LITERAL, (" ",)), (MONTH, tuple(months)), (LITERAL, (" ",)), (YEAR, years)
        return DatePattern("xx", "", (), parts[::-1] if year_first else parts, None)

    first = pattern("abcdefghijkl")
    # with `first` held out, nothing of this one but its January remains
    almost_the_same = pattern("zbcdefghijkl")
    second = pattern("aaaaaaaaaaab", year_first=True)
    for seed in range(10):
        assert hold_out({"xx": [first, almost_the_same, second]}, 1, Random(seed)) == [second]


def test_words_by_hand() -> None:
    assert words("mardi 3 mars 2026") == {"mardi", "mars", " "}
    assert words("3 марта 2026\u202fг.") == {"марта", "г", ".", " ", "\u202f"}
    # the signs of vowels and the joiner are part of the word
    assert words("३१ जाने, 2026") == {"जाने", ",", " "}
    assert words("سه\u200cشنبه 3") == {"سه\u200cشنبه", " "}
    assert words("2026年3月3日(火)") == {"年", "月", "日", "(", "火", ")"}
