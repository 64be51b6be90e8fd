"""The corpus of dates: `fr | mardi 3 mars 2026` → `2026-03-03`, in many languages, and its gold alignments.

A model learns it in minutes, an answer is right or wrong, and the alignment is known. The patterns of dates are those
of Unicode CLDR, through Babel.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import cache
from random import Random
from typing import TypeVar

from attent.alignment.aligner import TokenizedPair
from attent.errors import ArgumentError
from attent.tasks.dates.combinations import hold_out, shuffled
from attent.tasks.dates.patterns import ALL_DATES, DatePattern, Span, date_patterns, moment
from attent.tasks.dates.readings import ambiguous, key, keys, means_one_date
from attent.tasks.dates.settings import DatesSettings
from attent.text.text import Gold, Pair, TranslationCorpus, add_tag
from attent.text.tokenizer import Tokenizer

HELD_OUT_DATES, HELD_OUT_COMBINATIONS = "held-out dates", "held-out combinations"

TARGET_YEAR, TARGET_MONTH, TARGET_DAY = range(4), range(5, 7), range(8, 10)
FIELDS = (TARGET_YEAR, TARGET_MONTH, TARGET_DAY)
TRIES_PER_PAIR = 50

Draw = Callable[[], float]
Item = TypeVar("Item")


def dates(settings: DatesSettings) -> TranslationCorpus:
    """Write dates in many locales and patterns, and hold out some of each for tests.

    The (locale, pattern) combination and the date of each pair are uniformly random. No date is shared between
    training, validation and the test sets. The test set "held-out dates" writes its dates as training does;
    "held-out combinations" writes them, always with the tag, in combinations that training never shows: neither
    directly, nor through another pattern that happens to write the same, nor as an untagged text of another locale.
    Texts that mean several dates in their own locale are left out; the tag is left out only of texts that mean a single
    date in all the locales together.

    Args:
        settings: the locales, the numbers of pairs, and the seed.

    Returns:
        The corpus. Links join every character of the source's year, month and day to every character of the same field
        of the target; the tag, the day of the week and the text between the fields have none.

    Raises:
        ArgumentError: a locale has no usable pattern, or there are too few dates or combinations for the settings.
    """
    patterns = {locale: date_patterns(locale) for locale in settings.locale_names}
    held_out = hold_out(patterns, settings.held_out_combinations, random_stream(settings, "combinations"))
    training_patterns = [pattern for of_locale in patterns.values() for pattern in of_locale if pattern not in held_out]
    test_days, validation_days, days = split_days(settings)
    writer = _PairWriter(settings, patterns, held_out)
    draw = random_stream(settings, "training").random
    train = [writer.training_pair(draw, training_patterns, days) for _ in range(settings.training_pairs)]
    draw = random_stream(settings, "validation").random
    validation = [writer.training_pair(draw, training_patterns, [day]) for day in validation_days]
    draw = random_stream(settings, HELD_OUT_DATES).random
    new_dates = _distinct_pairs(
        settings.held_out_pairs, lambda: writer.training_pair(draw, training_patterns, test_days)
    )
    draw = random_stream(settings, HELD_OUT_COMBINATIONS).random
    new_combinations = (
        _distinct_pairs(settings.held_out_pairs, lambda: writer.test_pair(draw, held_out, test_days))
        if held_out
        else ()
    )
    return TranslationCorpus(train, validation, {HELD_OUT_DATES: new_dates, HELD_OUT_COMBINATIONS: new_combinations})


def split_days(settings: DatesSettings) -> tuple[list[int], list[int], list[int]]:
    """Return the days to test on, to validate on and to train on, in random order."""
    days = shuffled(ALL_DATES, random_stream(settings, "dates"))
    tests, held_out = settings.held_out_dates, settings.held_out_dates + settings.validation_pairs
    return days[:tests], days[tests:held_out], days[held_out:]


class _PairWriter:
    """Draws pairs by the settings' shares, and knows the texts that training must not show."""

    def __init__(
        self, settings: DatesSettings, patterns: Mapping[str, Sequence[DatePattern]], held_out: Sequence[DatePattern]
    ) -> None:
        self._settings = settings
        self._ambiguous = {locale: ambiguous(of_locale) for locale, of_locale in patterns.items()}
        self._ambiguous_untagged = ambiguous(pattern for of_locale in patterns.values() for pattern in of_locale)
        self._held_out: dict[str, set[str]] = {locale: set() for locale in patterns}
        for pattern in held_out:
            self._held_out[pattern.locale].update(text for text, _ in keys(pattern))
        self._held_out_untagged = set().union(*self._held_out.values())

    def training_pair(self, draw: Draw, patterns: Sequence[DatePattern], days: Sequence[int]) -> Pair:
        """Draw a pair of training."""
        for _ in range(TRIES_PER_PAIR):
            pattern, day, native, text = self._draw(draw, patterns, days)
            is_untagged = draw() < self._settings.untagged
            if text in self._held_out[pattern.locale]:
                continue
            if (
                is_untagged
                and text not in self._held_out_untagged
                and means_one_date(text, day.year, self._ambiguous_untagged)
            ):
                return _pair(pattern, day, native, tag=None)
            return _pair(pattern, day, native, tag=pattern.locale)
        raise ArgumentError("too few texts are left to train on: hold out fewer combinations")

    def test_pair(self, draw: Draw, patterns: Sequence[DatePattern], days: Sequence[int]) -> Pair:
        """Draw a pair of a held-out combination."""
        pattern, day, native, _ = self._draw(draw, patterns, days)
        return _pair(pattern, day, native, tag=pattern.locale)

    def _draw(
        self, draw: Draw, patterns: Sequence[DatePattern], days: Sequence[int]
    ) -> tuple[DatePattern, date, bool, str]:
        """Draw a combination, a date, the kind of digits, and the key of an unambiguous text."""
        for _ in range(TRIES_PER_PAIR):
            pattern, day = choose(draw, patterns), date.fromordinal(choose(draw, days))
            native = pattern.native_parts is not None and draw() < self._settings.native_digits
            text = key(pattern, moment(day), native=native)
            if means_one_date(text, day.year, self._ambiguous[pattern.locale]):
                return pattern, day, native, text
        raise ArgumentError("too few texts of these locales say which date they mean")


def _pair(pattern: DatePattern, day: date, native: bool, tag: str | None) -> Pair:
    written = pattern.write(moment(day), native=native)
    if tag is None:
        return Pair(written.text, day.isoformat(), _links(written.year, written.month, written.day, before=0))
    source = add_tag(tag, written.text)
    return Pair(
        source,
        day.isoformat(),
        _links(written.year, written.month, written.day, before=len(source) - len(written.text)),
    )


@cache
def _links(year: Span, month: Span, day: Span, before: int) -> tuple[tuple[int, int], ...]:
    fields = ((year, TARGET_YEAR), (month, TARGET_MONTH), (day, TARGET_DAY))
    return tuple(
        sorted((before + source, target) for span, targets in fields for source in range(*span) for target in targets)
    )


def _distinct_pairs(count: int, write: Callable[[], Pair]) -> list[Pair]:
    pairs = distinct(count, write, lambda pair: pair.source, set())
    if len(pairs) < count:
        raise ArgumentError(
            f"held_out_pairs must be at most about {len(pairs)} for these dates and combinations, got {count}"
        )
    return pairs


def distinct(count: int, write: Callable[[], Item], text_of: Callable[[Item], str], used: set[str]) -> list[Item]:
    """Write items whose texts are not in `used`, and add these; fewer than `count` if too many tries repeat a text."""
    items: list[Item] = []
    for _ in range(TRIES_PER_PAIR * count):
        if len(items) == count:
            break
        item = write()
        if text_of(item) not in used:
            used.add(text_of(item))
            items.append(item)
    return items


def random_stream(settings: DatesSettings, purpose: str) -> Random:
    """Make a generator for a purpose, so that more pairs of one purpose leave the others unchanged."""
    return Random(f"{settings.seed} {purpose}")


def choose(draw: Draw, items: Sequence[Item]) -> Item:
    """Choose an item uniformly; Python promises that random() alone stays the same from version to version."""
    return items[int(draw() * len(items))]


def gold_links(pair: Pair) -> Gold:
    """Return the gold links of a pair of this corpus, in characters of both sides.

    A target `YYYY-MM-DD` has three fields, and the pattern of the source knows the span of each.

    - A digit of the target and the digit at the same position of the same field in the source, counted from the field's
      end, are a **sure** link, in whatever script the source's digits are: of `3.` and `03` the 3, of `03` and `03`
      both.
    - A digit of the target and any other character of the same field in the source are a **possible** link: every
      letter of a month's name, the only digit of `3` for the 0 of `03`, another digit of the year.
    - Everything else is wrong: another field, the day of the week, the tag, spaces, signs and words between the fields.

    The target's two hyphens have no counterpart in the source, as spaces have none, and count as no words.
    """
    sure = set[tuple[int, int]]()
    for field in FIELDS:
        span = sorted({source for source, target in pair.links if target in field})
        digits = [source for source in span if unicodedata.decimal(pair.source[source], None) is not None]
        sure.update(zip(reversed(digits), reversed(field), strict=False))
    return Gold.of(sure, pair.links)


def target_words(target: str) -> list[int | None]:
    """Return the index of each character of a target as a word of its own; None for hyphens."""
    return [index if any(index in field for field in FIELDS) else None for index in range(len(target))]


def tokenize_dates(source: str, target: str, tokenizers: tuple[Tokenizer, Tokenizer]) -> TokenizedPair:
    """Tokenize a pair of the dates corpus, to be linked by characters as in `gold_links`."""
    return TokenizedPair(
        tokenizers[0].encode(source), tokenizers[1].encode(target), range(len(source)), target_words(target)
    )
