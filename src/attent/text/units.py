"""Words and signs of a text, the spaces between them, and joining them again.

Units are what terms and links are between: words, characters of scripts without spaces, and signs. Spacing says whether
tokenizers and segmenters cut a text into words, or people wrote it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from attent.errors import ArgumentError, needs

# Scripts that are written without spaces: Thai and Lao, Burmese, Khmer, kana, Chinese characters.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
# A gap has a space or not by convention alone: between two characters of these scripts, and before a comma or full stop
# after a word.
GAP = re.compile(rf"(?<=[{UNSPACED}])( ?)(?=[{UNSPACED}])|(?<=[^\W\d_])( ?)(?=[.,。，、](?:\s|$))")
# Fewer gaps than this say little about a training text.
MIN_GAPS = 20
# Shares nearer to 0 and 1 than this are not believed.
MARGIN = 0.02
# Shares must differ by this much, and be as unlikely as e to the power of minus this under training's share (Chernoff's
# bound).
DIFFERENCE, SURPRISE = 0.4, 7.0
# A character of a word, in scripts that part words by spaces; marks aside.
LETTER = rf"[^\W{UNSPACED}]"
# 2026-03-03 has three words, 3月 two.
UNIT = re.compile(rf"{LETTER}+|[{UNSPACED}]|[^\w\s]")
# A letter after a mark, of scripts that part words by spaces: both are of one word.
AFTER_MARK = re.compile(rf"[^{UNSPACED}]{LETTER}")
# The zero-width (non-)joiner, which stands within words of Persian and of India's languages.
JOINERS = "\u200c\u200d"
# Signs of Chinese and Japanese, which have no space around them.
SIGNS = re.compile(r" ?([，。！？；：、「」『』（）《》]) ?")


def count_gaps(text: str) -> tuple[int, int]:
    """Return how many of a text's gaps have a space, and how many gaps there are."""
    gaps = [gap.group() for gap in GAP.finditer(text)]
    return gaps.count(" "), len(gaps)


def spacing(texts: Iterable[str]) -> float | None:
    """Return the share of gaps with a space, 0 to 1; None for texts with few gaps."""
    counts = [count_gaps(text) for text in texts]
    spaced, gaps = sum(count[0] for count in counts), sum(count[1] for count in counts)
    return spaced / gaps if gaps >= MIN_GAPS else None


class SpacingCheck:
    """Compares the spacing of texts with that of a training text, until it is certain that it differs.

    Args:
        expected: the training text's; None if unknown, and nothing is compared.
    """

    def __init__(self, expected: float | None) -> None:
        self.expected = expected
        self._spaced = self._gaps = 0

    def add(self, text: str) -> str | None:
        """Add a text; return a message, once, if the texts so far are spaced differently."""
        if self.expected is None:
            return None
        spaced, gaps = count_gaps(text)
        self._spaced, self._gaps = self._spaced + spaced, self._gaps + gaps
        share = self._spaced / max(self._gaps, 1)
        if abs(share - self.expected) < DIFFERENCE or self._gaps * _divergence(share, self.expected) < SURPRISE:
            return None
        remedy = "join its words" if share > self.expected else "cut it into words"
        message = (
            f"this text is spaced differently: {share:.0%} of the places before a full stop or comma, or within "
            f"scripts such as Chinese, have a space, and {self.expected:.0%} in what the run was trained on; {remedy} "
            "as there"
        )
        self.expected = None
        return message


def _divergence(share: float, expected: float) -> float:
    """Return the Kullback-Leibler divergence of two shares, in nats."""
    expected = min(max(expected, MARGIN), 1 - MARGIN)
    return sum(p * math.log(p / q) for p, q in ((share, expected), (1 - share, 1 - expected)) if p > 0)


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


class Detokenizer:
    """Joins words and signs by the rules of a language.

    Writes the first letter of sentences large if all letters are small. Source: the detokenizer and detruecaser of
    Moses (Koehn et al. 2007, https://aclanthology.org/P07-2045), by sacremoses. Capitals inside of sentences, such as
    those of German nouns, do not come back.

    Args:
        language: of the text, a code such as "de".

    Raises:
        ArgumentError: sacremoses is not installed.
    """

    def __init__(self, language: str) -> None:
        with needs("--detokenize needs sacremoses", "detokenize", ArgumentError):
            from sacremoses import MosesDetokenizer, MosesDetruecaser  # pyright: ignore[reportMissingTypeStubs]
        self._language = re.split("[-_]", language.lower())[0]
        self._join, self._capitalize = MosesDetokenizer(lang=self._language), MosesDetruecaser()

    def __call__(self, text: str) -> str:
        """Return a text detokenized."""
        if text == text.lower() and text != text.upper():
            text = str(self._capitalize.detruecase(text, return_str=True))
        joined = str(self._join.detokenize(text.split(), return_str=True, unescape=True))
        return SIGNS.sub(r"\1", joined) if self._language in ("zh", "ja") else joined
