"""The corpus of dates: `fr | mardi 3 mars 2026` → `2026-03-03`, in many languages.

A model learns it in minutes, an answer is right or wrong, and the alignment is known. What people write is taken from
Unicode CLDR through Babel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import cache
from random import Random
from typing import TypeVar

from attent.data.dates.combinations import hold_out, shuffled
from attent.data.dates.patterns import ALL_DATES, DatePattern, Span, date_patterns, moment
from attent.data.dates.readings import ambiguous, key, keys, means_one_date
from attent.data.dates.settings import DatesSettings
from attent.data.text import Pair, TranslationCorpus, tagged
from attent.errors import ArgumentError

HELD_OUT_DATES, HELD_OUT_COMBINATIONS = "held-out dates", "held-out combinations"

TARGET_YEAR, TARGET_MONTH, TARGET_DAY = range(4), range(5, 7), range(8, 10)
TRIES_PER_PAIR = 50

Draw = Callable[[], float]
Item = TypeVar("Item")


def dates(settings: DatesSettings) -> TranslationCorpus:
    """Write dates in many locales and patterns, and keep some of each for testing.

    Every pair takes a (locale, pattern) combination and a date, each uniformly at random. No date is shared between
    training, validation and the test sets. The test set "held-out dates" writes its dates as training does;
    "held-out combinations" writes them, always with the tag, in combinations that training never shows: neither
    directly, nor through another pattern that happens to write the same, nor as an untagged text of another locale.
    Texts that mean several dates in their own locale are left out; the tag is left out only of texts that mean a single
    date in all the locales together.

    Args:
        settings: which locales, how many pairs, and the seed.

    Returns:
        The corpus. Links join every character of the source's year, month and day to every character of the same field
        of the target; the tag, the day of the week and the text between the fields have none.

    Raises:
        ArgumentError: a locale has no usable pattern, or there are too few dates or combinations for what is asked.
    """
    patterns = {locale: date_patterns(locale) for locale in settings.locale_names}
    held = hold_out(patterns, settings.held_out_combinations, chance(settings, "combinations"))
    trained = [pattern for of_locale in patterns.values() for pattern in of_locale if pattern not in held]
    days = shuffled(ALL_DATES, chance(settings, "dates"))
    tested, days = days[: settings.held_out_dates], days[settings.held_out_dates :]
    validated, days = days[: settings.validation_pairs], days[settings.validation_pairs :]

    writer = _Writer(settings, patterns, held)
    draw = chance(settings, "training").random
    train = [writer.trained(draw, trained, days) for _ in range(settings.training_pairs)]
    draw = chance(settings, "validation").random
    validation = [writer.trained(draw, trained, [day]) for day in validated]
    draw = chance(settings, HELD_OUT_DATES).random
    new_dates = _distinct(settings.held_out_pairs, lambda: writer.trained(draw, trained, tested))
    draw = chance(settings, HELD_OUT_COMBINATIONS).random
    combined = _distinct(settings.held_out_pairs, lambda: writer.kept(draw, held, tested)) if held else ()
    return TranslationCorpus(train, validation, {HELD_OUT_DATES: new_dates, HELD_OUT_COMBINATIONS: combined})


class _Writer:
    """Draws pairs by the settings' shares, and knows what must not be shown."""

    def __init__(self, settings: DatesSettings, patterns: Mapping[str, Sequence[DatePattern]], held: Sequence[DatePattern]) -> None:
        self._settings = settings
        self._ambiguous = {locale: ambiguous(of_locale) for locale, of_locale in patterns.items()}
        self._ambiguous_untagged = ambiguous(pattern for of_locale in patterns.values() for pattern in of_locale)
        self._kept: dict[str, set[str]] = {locale: set() for locale in patterns}
        for pattern in held:
            self._kept[pattern.locale].update(text for text, _ in keys(pattern))
        self._kept_untagged = set().union(*self._kept.values())

    def trained(self, draw: Draw, patterns: Sequence[DatePattern], days: Sequence[int]) -> Pair:
        """A pair of the kind that training shows."""
        for _ in range(TRIES_PER_PAIR):
            pattern, day, native, text = self._draw(draw, patterns, days)
            bare = draw() < self._settings.untagged
            if text in self._kept[pattern.locale]:
                continue
            if bare and text not in self._kept_untagged and means_one_date(text, day.year, self._ambiguous_untagged):
                return _pair(pattern, day, native, tag=None)
            return _pair(pattern, day, native, tag=pattern.locale)
        raise ArgumentError("too few texts are left to train on: hold out fewer combinations")

    def kept(self, draw: Draw, patterns: Sequence[DatePattern], days: Sequence[int]) -> Pair:
        """A pair of a combination that is kept for testing."""
        pattern, day, native, _ = self._draw(draw, patterns, days)
        return _pair(pattern, day, native, tag=pattern.locale)

    def _draw(self, draw: Draw, patterns: Sequence[DatePattern], days: Sequence[int]) -> tuple[DatePattern, date, bool, str]:
        """A combination, a date, the kind of digits, and the key of a text that has an answer."""
        for _ in range(TRIES_PER_PAIR):
            pattern, day = pick(draw, patterns), date.fromordinal(pick(draw, days))
            native = pattern.native_parts is not None and draw() < self._settings.native_digits
            text = key(pattern, moment(day), native=native)
            if means_one_date(text, day.year, self._ambiguous[pattern.locale]):
                return pattern, day, native, text
        raise ArgumentError("too few texts of these locales say which date they mean")


def _pair(pattern: DatePattern, day: date, native: bool, tag: str | None) -> Pair:
    written = pattern.write(moment(day), native=native)
    if tag is None:
        return Pair(written.text, day.isoformat(), _links(written.year, written.month, written.day, before=0))
    source = tagged(tag, written.text)
    return Pair(source, day.isoformat(), _links(written.year, written.month, written.day, before=len(source) - len(written.text)))


@cache
def _links(year: Span, month: Span, day: Span, before: int) -> tuple[tuple[int, int], ...]:
    fields = ((year, TARGET_YEAR), (month, TARGET_MONTH), (day, TARGET_DAY))
    joined = [(before + source, target) for span, targets in fields for source in range(*span) for target in targets]
    return tuple(sorted(joined))


def _distinct(count: int, write: Callable[[], Pair]) -> list[Pair]:
    found: dict[str, Pair] = {}
    for _ in range(TRIES_PER_PAIR * count):
        if len(found) == count:
            break
        pair = write()
        found.setdefault(pair.source, pair)
    if len(found) < count:
        raise ArgumentError(f"held_out_pairs must be at most about {len(found)} for these dates and combinations, got {count}")
    return list(found.values())


def chance(settings: DatesSettings, purpose: str) -> Random:
    """A stream of random numbers of its own for each purpose, so that more pairs of one leave the others as they are."""
    return Random(f"{settings.seed} {purpose}")


def pick(draw: Draw, items: Sequence[Item]) -> Item:
    """One item uniformly at random; only random() is promised to stay the same from one version of Python to the next."""
    return items[int(draw() * len(items))]
