"""The (locale, pattern) combinations that are kept for testing.

A combination can be kept if it spells its month out and everything it writes (every word, and every mark between the
words) is also written by the patterns of its locale that remain in training. So a model has met all the parts, in the very
form, but never put together like this.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from random import Random
from typing import TypeVar

from attent.data.dates.patterns import DatePattern, sample
from attent.errors import ArgumentError

Item = TypeVar("Item")
JOINERS = "\u200c\u200d"


def words(text: str) -> set[str]:
    """The words of a text (runs of letters, their marks and joiners) and its other characters except digits."""
    found: set[str] = set()
    word: list[str] = []
    for character in text:
        if _in_word(character):
            word.append(character)
            continue
        found.add("".join(word))
        word.clear()
        if not character.isdecimal():
            found.add(character)
    found.add("".join(word))
    return found - {""}


def hold_out(patterns: Mapping[str, Sequence[DatePattern]], count: int, draw: Random) -> list[DatePattern]:
    """Choose combinations for testing, spread over the locales.

    Args:
        patterns: the patterns of each locale.
        count: how many to choose.
        draw: where chance comes from.

    Raises:
        ArgumentError: so many cannot be kept while all their words stay in training.
    """
    waiting = {locale: shuffled([p for p in of_locale if p.spells_month], draw) for locale, of_locale in patterns.items()}
    order = shuffled(list(patterns), draw)
    chosen: dict[str, list[DatePattern]] = {locale: [] for locale in order}
    total = 0
    while total < count and any(waiting.values()):
        for locale in order:
            while total < count and waiting[locale]:
                candidate = [*chosen[locale], waiting[locale].pop()]
                if _covered(candidate, patterns[locale]):
                    chosen[locale], total = candidate, total + 1
                    break
    if total < count:
        raise ArgumentError(f"held_out_combinations must be at most {total} for these locales, got {count}")
    return [pattern for of_locale in chosen.values() for pattern in of_locale]


def _covered(held: Sequence[DatePattern], patterns: Sequence[DatePattern]) -> bool:
    """Whether the texts that remain in training hold every word of the held ones."""
    texts = {text for pattern in held for text in _texts(pattern)}
    # what another pattern writes in the same way does not remain either
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
    """The items in an order that is the same for the same seed in every version of Python."""
    weights = [draw.random() for _ in items]
    return [items[index] for index in sorted(range(len(items)), key=weights.__getitem__)]
