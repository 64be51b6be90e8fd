"""The units of a text that terms and links are between: words, characters of scripts without spaces, and signs."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from attent.text.spacing import UNSPACED

# A character of a word, in scripts that part words by spaces; marks aside.
LETTER = rf"[^\W{UNSPACED}]"
# 2026-03-03 has three words, 3月 two.
UNIT = re.compile(rf"{LETTER}+|[{UNSPACED}]|[^\w\s]")
# A letter after a mark, of scripts that part words by spaces: both are of one word.
AFTER_MARK = re.compile(rf"[^{UNSPACED}]{LETTER}")
# The zero-width (non-)joiner, which stands within words of Persian and of India's languages.
JOINERS = "\u200c\u200d"


class Span(NamedTuple):
    """Characters of a text, from `begin` to before `end`."""

    begin: int
    end: int


def units(text: str) -> list[Span]:
    """Return the words and the signs of a text.

    Marks such as the vowels of Devanagari belong to the letter before them.
    """
    spans: list[Span] = []
    for match in UNIT.finditer(text):
        begin, end = match.span()
        is_beside = bool(spans) and begin == spans[-1].end
        if is_beside and (is_mark(text[begin]) or (is_mark(text[begin - 1]) and AFTER_MARK.match(text, begin - 1))):
            begin = spans.pop().begin
        spans.append(Span(begin, end))
    return spans


def is_mark(character: str) -> bool:
    """Return whether a character belongs to the letter before it: accents, vowel signs, joiners."""
    return unicodedata.category(character).startswith("M") or character in JOINERS
