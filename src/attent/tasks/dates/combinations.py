"""The (locale, pattern) combinations that are held out for tests.

A combination can be held out if it spells its month, and the patterns of its locale that remain in training write all
of its words and all of its marks between words: a model has been trained on all parts, in the same form, but never in
this combination.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from random import Random
from typing import TypeVar

from attent.errors import ArgumentError
from attent.tasks.dates.patterns import DatePattern, sample

Item = TypeVar("Item")
JOINERS = "\u200c\u200d"


def words(text: str) -> set[str]:
    """Return the words of a text (letters, their marks and joiners) and its other characters except digits."""
    result: set[str] = set()
    for is_word, characters in groupby(text, _in_word):
        part = "".join(characters)
        result.update([part] if is_word else (character for character in part if not character.isdecimal()))
    return result


def hold_out(patterns: Mapping[str, Sequence[DatePattern]], count: int, draw: Random) -> list[DatePattern]:
    """Choose combinations for tests, spread over the locales.

    Args:
        patterns: the patterns of each locale.
        count: of combinations.
        draw: the random generator.

    Raises:
        ArgumentError: so many cannot be held out while all their words stay in training.
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
    texts = {text for pattern in held_out for text in _texts(pattern)}
    # a text that another pattern writes too does not remain either
    training = {text for pattern in patterns for text in _texts(pattern)} - texts
    return _all_words(texts) <= _all_words(training)


def _all_words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in words(text)}


@cache
def _in_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LM" or character in JOINERS


def _texts(pattern: DatePattern) -> list[str]:
    return [pattern.text(when) for when in sample(pattern)]


def shuffled(items: Sequence[Item], draw: Random) -> list[Item]:
    """Shuffle items in an order that is the same for the same seed in every version of Python."""
    weights = [draw.random() for _ in items]
    return [items[index] for index in sorted(range(len(items)), key=weights.__getitem__)]
