"""Words to token ids and back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from attent.data import tokenizer_file
from attent.data.tokenizer import SPECIALS, UNK, spoken
from attent.errors import ArgumentError, DataError

FORMAT, VERSION = "attent word tokenizer", 1
# A word seen once teaches nothing that it could not say as an unknown one.
LEAST = 2

# Signs that stand by themselves. Marks and joiners belong to words, or those of many scripts would be torn.
SIGNS = r"!-/:-@\[-^`{-~¡-©«-´¶-¹»-¿×÷\u2010-\u2027\u2030-\u205e\u3001-\u3020\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
# Letters hold together, a sign is one piece, either with the one space before it; other white space is a piece of its own.
PIECE = re.compile(rf" ?[^\s{SIGNS}]+| ?[{SIGNS}]|\s")

# Characters of a text whose words are not all held at once: a list of them takes some twenty times its bytes.
LONG = 2**16


def _pieces(text: str) -> Iterable[str]:
    text = f" {text}"
    return PIECE.findall(text) if len(text) < LONG else (match[0] for match in PIECE.finditer(text))


class WordTokenizer:
    """One id per word or sign, with the space before it, so that pieces put together are the text again.

    The first word of a text is written as if a space stood before it, so that it is the same word there as elsewhere.
    Text is taken as it is: no normalisation, no folding of case.

    Args:
        words: the known pieces, most with a space before them; the first has the id 4.

    Raises:
        ArgumentError: an entry is no text, or occurs twice.
    """

    def __init__(self, words: Sequence[str]) -> None:
        for word in words:
            if not isinstance(word, str) or not word:
                raise ArgumentError(f"a known word must be a text, got {word!r}")
        self._words = tuple(words)
        self._ids = {word: index + SPECIALS for index, word in enumerate(self._words)}
        if len(self._ids) != len(self._words):
            twice = next(word for word, count in Counter(self._words).items() if count > 1)
            raise ArgumentError(f"known words must be distinct, got {twice!r} twice")

    @classmethod
    def learn(cls, lines: Iterable[str], size: int | None = None) -> Self:
        """The tokenizer that knows the most frequent words of the lines, ties by code points.

        Args:
            lines: the text to learn from.
            size: the number of ids, the special ones included; unless given, every word that occurs twice has one.

        Raises:
            ArgumentError: the size leaves room for no word.
        """
        if size is not None and size <= SPECIALS:
            raise ArgumentError(f"a vocabulary must have more than its {SPECIALS} special ids, got {size}")
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(_pieces(line))
        words = sorted(counts, key=lambda word: (-counts[word], word))
        return cls([word for word in words if counts[word] >= LEAST] if size is None else words[: size - SPECIALS])

    @property
    def size(self) -> int:
        """The number of ids, the four special ones included."""
        return SPECIALS + len(self._words)

    @property
    def words(self) -> tuple[str, ...]:
        """The known words in the order of their ids."""
        return self._words

    def encode(self, text: str) -> list[int]:
        """The id of every word, UNK for an unknown one; no BOS, no EOS."""
        return [self._ids.get(word, UNK) for word in _pieces(text)] if text else []

    def decode(self, ids: Iterable[int]) -> str:
        """The words up to the first EOS; PAD, UNK and BOS leave no trace.

        Raises:
            ArgumentError: an id is not below `size`.
        """
        return "".join(self._words[token - SPECIALS] for token in spoken(ids, self.size)).removeprefix(" ")

    def pieces(self, text: str) -> list[str]:
        """The words with the spaces before them, one per id of `encode(text)`, unknown ones too."""
        return list(_pieces(text)) if text else []

    def piece(self, token: int) -> str:
        """The word with the space before it."""
        return self._words[token - SPECIALS] if token >= SPECIALS else ""

    def word(self, token: int) -> str | None:
        """The word."""
        return self.piece(token).strip() or None

    def save(self, path: Path) -> None:
        """Write the tokenizer as JSON, with the version of its format."""
        tokenizer_file.write(path, FORMAT, VERSION, {"words": self._words})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            DataError: the file is missing or damaged, or a newer attent wrote it.
        """
        words = tokenizer_file.read(path, FORMAT, VERSION).get("words")
        if not isinstance(words, list):
            raise DataError(f"{path} is damaged: its words must be a list")
        try:
            return cls(words)
        except ArgumentError as error:
            raise DataError(f"{path} is damaged: {error}") from error
