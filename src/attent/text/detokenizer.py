"""Detokenizing: text that was cut into words and lower-cased, written as people write it."""

from __future__ import annotations

import re

from attent.errors import ArgumentError, needs

# Signs of Chinese and Japanese, which have no space around them.
SIGNS = re.compile(r" ?([，。！？；：、「」『』（）《》]) ?")


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
