"""The corpus of dates: `fr | mardi 3 mars 2026` → `2026-03-03`, in many languages, and its gold alignments.

A model learns it in minutes, an answer is either right or wrong, and the alignment is known. The date patterns come
from Unicode CLDR, through Babel.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import cache
from itertools import groupby
from random import Random
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, Field, field_validator, model_validator

from attent.alignment.aligner import TokenizedPair
from attent.errors import ArgumentError, did_you_mean
from attent.tasks.dates.patterns import (
    ALL_DATES,
    DatePattern,
    Span,
    ambiguous_texts,
    date_patterns,
    leap_year_text,
    means_one_date,
    moment,
    sample_moments,
    texts_with_readings,
)
from attent.tasks.sampling import Draw, choose
from attent.text.text import Gold, Pair, TranslationCorpus, add_tag
from attent.text.tokenizer import Tokenizer

HELD_OUT_DATES, HELD_OUT_COMBINATIONS = "held-out dates", "held-out combinations"
# Fields of a target YYYY-MM-DD.
TARGET_YEAR, TARGET_MONTH, TARGET_DAY = range(4), range(5, 7), range(8, 10)
FIELDS = (TARGET_YEAR, TARGET_MONTH, TARGET_DAY)
TRIES_PER_PAIR = 50
# Characters that join the letters of a word.
JOINERS = "\u200c\u200d"

Item = TypeVar("Item")

Share = Annotated[float, Field(ge=0.0, le=1.0)]

# fmt: off
DEMO = ("en", "de", "fr", "es", "it", "pt", "ru", "el", "ar_EG", "fa", "mr", "ja", "ko", "zh")
FULL = (
    *DEMO, "en_GB", "es_MX", "pt_PT", "fr_CA", "zh_Hant", "nl", "sv", "da", "nb", "fi", "is", "et", "lv", "lt", "pl",
    "cs", "sk",
    "hu", "ro", "hr", "sl", "sq", "ca", "eu", "gl", "tr", "az", "vi", "id", "ms", "sw", "uk", "bg", "sr", "mk", "kk",
    "he", "ur",
    "hi", "bn", "ne", "ta", "te", "th", "ka", "hy", "my", "am",
)
# fmt: on


class DatesSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of the dates corpus; the defaults make a small corpus, on which a laptop trains in minutes."""

    locales: Literal["demo", "full"] | tuple[str, ...] = Field(
        "demo",
        description='"demo" (14 locales in 7 scripts), "full" (62 locales), or a list of Babel locale names',
    )
    training_pairs: int = Field(60_000, ge=1, le=100_000_000, description="pairs to train on")
    validation_pairs: int = Field(
        1_000, ge=1, description="pairs to validate on, each with a date that occurs nowhere else"
    )
    held_out_dates: int = Field(
        2_000, ge=1, description="dates reserved for the two test sets, used neither in training nor in validation"
    )
    held_out_pairs: int = Field(1_000, ge=1, description="pairs in each test set")
    held_out_combinations: int = Field(12, ge=0, description="(locale, pattern) combinations reserved for testing")
    untagged: Share = Field(
        0.15, description="share of pairs without a locale tag, if the date is clear from the text alone"
    )
    native_digits: Share = Field(0.5, description="share of pairs in the locale's own digits, if those are not Latin")
    seed: int = Field(0, ge=0, description="the same settings and seed give the same pairs")

    @field_validator("locales")
    @classmethod
    def _known_locales(cls, locales: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(locales, str):
            return locales
        if not locales or len(set(locales)) != len(locales):
            raise ArgumentError(f"locales must be distinct and at least one, got {list(locales)}")
        import babel
        from babel import localedata

        identifiers = localedata.locale_identifiers()
        if unknown := next((locale for locale in locales if locale not in identifiers), None):
            raise ArgumentError(
                f"unknown locale {unknown!r}{did_you_mean(unknown, identifiers)} "
                f"(Babel {babel.__version__} knows {len(identifiers)}, such as 'pt_BR')"
            )
        return locales

    @model_validator(mode="after")
    def _dates_left_to_train_on(self) -> DatesSettings:
        held_out = self.held_out_dates + self.validation_pairs
        if held_out >= len(ALL_DATES):
            raise ArgumentError(
                f"held_out_dates + validation_pairs must be below the {len(ALL_DATES)} dates there are, got {held_out}"
            )
        return self

    @property
    def locale_names(self) -> tuple[str, ...]:
        """The Babel names of the locales in `locales`."""
        return {"demo": DEMO, "full": FULL}[self.locales] if isinstance(self.locales, str) else self.locales


def words(text: str) -> set[str]:
    """Return the words of a text (letters, their marks and joiners) and its other characters except digits."""
    result: set[str] = set()
    for is_word, characters in groupby(text, _in_word):
        part = "".join(characters)
        result.update([part] if is_word else (character for character in part if not character.isdecimal()))
    return result


def hold_out(patterns: Mapping[str, Sequence[DatePattern]], count: int, draw: Random) -> list[DatePattern]:
    """Choose (locale, pattern) combinations for tests, spread over the locales.

    A combination can be held out if it spells out its month, and if the patterns of its locale that remain in training
    contain all of its words and separators: the model is trained on all parts, in the same form, but never in this
    combination.

    Args:
        patterns: the patterns of each locale.
        count: the number of combinations.
        draw: the random generator.

    Raises:
        ArgumentError: fewer combinations can be held out if all their words are to remain in training.
    """
    candidates = {
        locale: shuffled([p for p in of_locale if p.spells_month], draw) for locale, of_locale in patterns.items()
    }
    order = shuffled(list(patterns), draw)
    chosen: dict[str, list[DatePattern]] = {locale: [] for locale in order}
    total = 0
    while total < count and any(candidates.values()):
        for locale in order:
            while total < count and candidates[locale]:
                extended = [*chosen[locale], candidates[locale].pop()]
                if _is_covered(extended, patterns[locale]):
                    chosen[locale], total = extended, total + 1
                    break
    if total < count:
        raise ArgumentError(f"held_out_combinations must be at most {total} for these locales, got {count}")
    return [pattern for of_locale in chosen.values() for pattern in of_locale]


def _is_covered(held_out: Sequence[DatePattern], patterns: Sequence[DatePattern]) -> bool:
    """Return whether the texts that remain in training have every word of the held-out ones."""
    texts, all_texts = (
        {pattern.text(when) for pattern in group for when in sample_moments(pattern)} for group in (held_out, patterns)
    )
    # a text that a held-out pattern shares with another one does not remain either
    held_out_words, training_words = (set().union(*map(words, part)) for part in (texts, all_texts - texts))
    return held_out_words <= training_words


@cache
def _in_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LM" or character in JOINERS


def shuffled(items: Sequence[Item], draw: Random) -> list[Item]:
    """Shuffle items; the same seed gives the same order in every version of Python."""
    weights = [draw.random() for _ in items]
    return [items[index] for index in sorted(range(len(items)), key=weights.__getitem__)]


def dates(settings: DatesSettings) -> TranslationCorpus:
    """Write dates in many locales and patterns, and hold out some of each for tests.

    The (locale, pattern) combination and the date of each pair are uniformly random. No date is shared between
    training, validation and the test sets. The test set "held-out dates" writes its dates as training does;
    "held-out combinations" writes them, always with the tag, in combinations that training never shows: neither
    directly, nor through another pattern that gives the same text, nor as an untagged text of another locale. Texts
    that are ambiguous in their own locale are left out; the tag is omitted only from texts that mean a single date
    across all locales.

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
    count = settings.held_out_pairs if held_out else 0
    new_combinations = _distinct_pairs(count, lambda: writer.test_pair(draw, held_out, test_days))
    return TranslationCorpus(train, validation, {HELD_OUT_DATES: new_dates, HELD_OUT_COMBINATIONS: new_combinations})


def split_days(settings: DatesSettings) -> tuple[list[int], list[int], list[int]]:
    """Return the days to test on, to validate on and to train on, in random order."""
    days = shuffled(ALL_DATES, random_stream(settings, "dates"))
    tests, held_out = settings.held_out_dates, settings.held_out_dates + settings.validation_pairs
    return days[:tests], days[tests:held_out], days[held_out:]


class _PairWriter:
    """Draws pairs in the shares of the settings, and keeps held-out texts out of training."""

    def __init__(
        self, settings: DatesSettings, patterns: Mapping[str, Sequence[DatePattern]], held_out: Sequence[DatePattern]
    ) -> None:
        self._settings = settings
        self._ambiguous = {locale: ambiguous_texts(of_locale) for locale, of_locale in patterns.items()}
        self._ambiguous_untagged = ambiguous_texts(pattern for of_locale in patterns.values() for pattern in of_locale)
        self._held_out: dict[str, set[str]] = {locale: set() for locale in patterns}
        for pattern in held_out:
            self._held_out[pattern.locale].update(text for text, _ in texts_with_readings(pattern))
        self._held_out_untagged = set().union(*self._held_out.values())

    def training_pair(self, draw: Draw, patterns: Sequence[DatePattern], days: Sequence[int]) -> Pair:
        """Draw a training pair."""
        for _ in range(TRIES_PER_PAIR):
            pattern, day, native, text = self._draw(draw, patterns, days)
            is_untagged = draw() < self._settings.untagged
            if text not in self._held_out[pattern.locale]:
                needs_no_tag = (
                    is_untagged
                    and text not in self._held_out_untagged
                    and means_one_date(text, day.year, self._ambiguous_untagged)
                )
                return _pair(pattern, day, native, tag=None if needs_no_tag else pattern.locale)
        raise ArgumentError("too few texts are left to train on: hold out fewer combinations")

    def test_pair(self, draw: Draw, patterns: Sequence[DatePattern], days: Sequence[int]) -> Pair:
        """Draw a pair with a held-out combination."""
        pattern, day, native, _ = self._draw(draw, patterns, days)
        return _pair(pattern, day, native, tag=pattern.locale)

    def _draw(
        self, draw: Draw, patterns: Sequence[DatePattern], days: Sequence[int]
    ) -> tuple[DatePattern, date, bool, str]:
        """Draw a combination, a date, the kind of digits, and the unambiguous text in the leap year."""
        for _ in range(TRIES_PER_PAIR):
            pattern, day = choose(draw, patterns), date.fromordinal(choose(draw, days))
            native = pattern.native_parts is not None and draw() < self._settings.native_digits
            text = leap_year_text(pattern, moment(day), native=native)
            if means_one_date(text, day.year, self._ambiguous[pattern.locale]):
                return pattern, day, native, text
        raise ArgumentError("too few texts of these locales are unambiguous")


def _pair(pattern: DatePattern, day: date, native: bool, tag: str | None) -> Pair:
    text, *spans = pattern.write(moment(day), native=native)
    source = text if tag is None else add_tag(tag, text)
    return Pair(source, day.isoformat(), _links(*spans, before=len(source) - len(text)))


@cache
def _links(year: Span, month: Span, day: Span, before: int) -> tuple[tuple[int, int], ...]:
    return tuple(
        sorted(
            (before + source, target)
            for span, targets in ((year, TARGET_YEAR), (month, TARGET_MONTH), (day, TARGET_DAY))
            for source in range(*span)
            for target in targets
        )
    )


def _distinct_pairs(count: int, write: Callable[[], Pair]) -> list[Pair]:
    """Write pairs with different sources."""
    by_source: dict[str, Pair] = {}
    for _ in range(TRIES_PER_PAIR * count):
        if len(by_source) == count:
            break
        pair = write()
        by_source.setdefault(pair.source, pair)
    pairs = [*by_source.values()]
    if len(pairs) < count:
        raise ArgumentError(
            f"held_out_pairs must be at most about {len(pairs)} for these dates and combinations, got {count}"
        )
    return pairs


def random_stream(settings: DatesSettings, purpose: str) -> Random:
    """Make a random generator for one purpose, so that more pairs for one purpose leave the others unchanged."""
    return Random(f"{settings.seed} {purpose}")


def gold_links(pair: Pair) -> Gold:
    """Return the gold links of a pair of this corpus, in characters of both sides.

    A target `YYYY-MM-DD` has three fields, and the pattern of the source knows the span of each.

    - A digit of the target and the digit at the same position of the same field in the source, counted from the field's
      end, are a **sure** link, in any script: the 3 in `3.` and `03`, and both digits in `03` and `03`.
    - A digit of the target and any other character of the same field in the source are a **possible** link: every
      letter of a month's name, the only digit of `3` for the 0 of `03`, another digit of the year.
    - Everything else is wrong: another field, the day of the week, the tag, and spaces, punctuation and words between
      the fields.

    The target's two hyphens, like spaces, have no counterpart in the source, and do not count as words.
    """
    sure = set[tuple[int, int]]()
    for field in FIELDS:
        span = sorted({source for source, target in pair.links if target in field})
        digits = [source for source in span if unicodedata.decimal(pair.source[source], None) is not None]
        sure.update(zip(reversed(digits), reversed(field), strict=False))
    return Gold.of(sure, pair.links)


def target_words(target: str) -> list[int | None]:
    """Return the word index of each character of a target; each is a separate word, and hyphens have None."""
    return [index if any(index in field for field in FIELDS) else None for index in range(len(target))]


def tokenize_dates(source: str, target: str, tokenizers: tuple[Tokenizer, Tokenizer]) -> TokenizedPair:
    """Tokenize a pair of the dates corpus, to be linked by characters as in `gold_links`."""
    return TokenizedPair(
        tokenizers[0].encode(source), tokenizers[1].encode(target), range(len(source)), target_words(target)
    )
