"""Splitting a text into words and signs, checking its spacing, and detokenization.

Units are the elements of terms and links: words, characters of scripts without spaces, and signs. Spacing shows whether
a text was split into words by a tokenizer or segmenter, or is as people wrote it.
"""

import math
import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from attent.errors import ArgumentError, needs

# Scripts that are written without spaces: Thai and Lao, Burmese, Khmer, kana, Chinese characters.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
# A gap is a position that has a space only by convention: between two characters of these scripts, and between a word
# and a comma or full stop.
GAP = re.compile(rf"(?<=[{UNSPACED}])( ?)(?=[{UNSPACED}])|(?<=[^\W\d_])( ?)(?=[.,。，、](?:\s|$))")
# A training text with fewer gaps than this says too little about its spacing.
MIN_GAPS = 20
# Training's share is clipped to this distance from 0 and 1.
MARGIN = 0.02
# Shares must differ by at least DIFFERENCE, and their probability given training's share must be at most e^−SURPRISE
# (Chernoff bound).
DIFFERENCE, SURPRISE = 0.4, 7.0
# A character of a word, apart from marks, in scripts that separate words with spaces.
LETTER = rf"[^\W{UNSPACED}]"
# 2026-03-03 has three words, 3月 two.
UNIT = re.compile(rf"{LETTER}+|[{UNSPACED}]|[^\w\s]")
# A letter after a mark, in scripts that separate words with spaces: both belong to the same word.
AFTER_MARK = re.compile(rf"[^{UNSPACED}]{LETTER}")
# The zero-width (non-)joiner, which occurs within words of Persian and of Indian languages.
JOINERS = "\u200c\u200d"
# Signs of Chinese and Japanese, which have no space around them.
SIGNS = re.compile(r" ?([，。！？；：、「」『』（）《》]) ?")


def count_gaps(text: str) -> tuple[int, int]:
    """Return the number of a text's gaps that have a space, and the number of all gaps."""
    gaps = [gap.group() for gap in GAP.finditer(text)]
    return gaps.count(" "), len(gaps)


def spacing(texts: Iterable[str]) -> float | None:
    """Return the share of gaps with a space, 0 to 1; None for texts with too few gaps."""
    counts = [count_gaps(text) for text in texts]
    spaced, gaps = sum(count[0] for count in counts), sum(count[1] for count in counts)
    return spaced / gaps if gaps >= MIN_GAPS else None


class SpacingCheck:
    """Compares the spacing of texts with that of a training text, until a difference is certain.

    Args:
        expected: the spacing of the training text; if None, nothing is compared.
    """

    def __init__(self, expected: float | None) -> None:
        self.expected = expected
        self._spaced = self._gaps = 0

    def add(self, text: str) -> str | None:
        """Add a text; return a message, only once, if the texts so far are spaced differently."""
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
            f"scripts such as Chinese, have a space, but {self.expected:.0%} in the training text; {remedy} as in the "
            "training text"
        )
        self.expected = None
        return message


def _divergence(share: float, expected: float) -> float:
    """Return the Kullback-Leibler divergence of two shares, in nats."""
    expected = min(max(expected, MARGIN), 1 - MARGIN)
    return sum(p * math.log(p / q) for p, q in ((share, expected), (1 - share, 1 - expected)) if p > 0)


class Span(NamedTuple):
    """A range of characters in a text, from `begin` up to but not including `end`."""

    begin: int
    end: int


def units(text: str) -> list[Span]:
    """Return the spans of the words and signs of a text.

    Marks such as the vowel signs of Devanagari belong to the letter before them.
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

    Capitalizes the first letter of sentences if the whole text is in lower case. Source: the detokenizer and
    detruecaser of Moses (Koehn et al. 2007, https://aclanthology.org/P07-2045), from sacremoses. Capitals within
    sentences, such as those of German nouns, are not restored.

    Args:
        language: the language code of the text, such as "de".

    Raises:
        ArgumentError: sacremoses is not installed.
    """

    def __init__(self, language: str) -> None:
        with needs("--detokenize needs sacremoses", "detokenize", ArgumentError):
            from sacremoses import MosesDetokenizer, MosesDetruecaser  # pyright: ignore[reportMissingTypeStubs]
        self._language = re.split("[-_]", language.lower())[0]
        self._join, self._capitalize = MosesDetokenizer(lang=self._language), MosesDetruecaser()

    def __call__(self, text: str) -> str:
        """Return the detokenized text."""
        if text == text.lower() and text != text.upper():
            text = str(self._capitalize.detruecase(text, return_str=True))
        joined = str(self._join.detokenize(text.split(), return_str=True, unescape=True))
        return SIGNS.sub(r"\1", joined) if self._language in ("zh", "ja") else joined
