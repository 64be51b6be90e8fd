"""Text to token ids and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, Self

from attent.data import tokenizer_file
from attent.errors import ArgumentError, DataError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = 4
FORMAT, VERSION = "attent character tokenizer", 1


def spoken(ids: Iterable[int], size: int) -> Iterator[int]:
    """The ids up to the first EOS that stand for text; PAD, UNK and BOS are passed over.

    Args:
        ids: what a model has written.
        size: the number of ids that there are.

    Raises:
        ArgumentError: an id is not below `size`.
    """
    for token in ids:
        if token == EOS:
            return
        if not 0 <= token < size:
            raise ArgumentError(f"a token id must be from 0 to {size - 1}, got {token}")
        if token >= SPECIALS:
            yield int(token)


class Tokenizer(Protocol):
    """What every tokenizer can do; the ids 0 to 3 are PAD, UNK, BOS and EOS in each of them."""

    @property
    def size(self) -> int:
        """The number of ids, the special ones included."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without BOS and EOS."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids: up to the first EOS, special ids dropped."""
        ...

    def pieces(self, text: str) -> list[str]:
        """What each id of `encode(text)` stands for, to be written at the axes of a picture."""
        ...

    def piece(self, token: int) -> str:
        """What an id stands for, as `pieces` writes it; nothing for a special id or a byte."""
        ...

    def word(self, token: int) -> str | None:
        """The whole word or sign that an id stands for; None for a part of a word, white space or a special id."""
        ...

    def save(self, path: Path) -> None:
        """Write the tokenizer to a file."""
        ...

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        ...


class CharTokenizer:
    """One id per character, that is, per Unicode code point.

    Text is taken as it is: no normalisation, no folding of case, no trimming of spaces, so that decoding what was
    encoded gives back the same text wherever every character is known.

    Args:
        characters: the known characters; the first has the id 4.

    Raises:
        ArgumentError: an entry is not a single character, or occurs twice.
    """

    def __init__(self, characters: Sequence[str]) -> None:
        for character in characters:
            if not isinstance(character, str) or len(character) != 1:
                raise ArgumentError(f"a known character must be one code point, got {character!r}")
        self._characters = tuple(characters)
        self._ids = {character: index + SPECIALS for index, character in enumerate(self._characters)}
        if len(self._ids) != len(self._characters):
            twice = next(character for character, count in Counter(self._characters).items() if count > 1)
            raise ArgumentError(f"known characters must be distinct, got {twice!r} twice")

    @classmethod
    def learn(cls, lines: Iterable[str]) -> Self:
        """The tokenizer that knows every character of the lines: the most frequent first, ties by code point."""
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(line)
        return cls(sorted(counts, key=lambda character: (-counts[character], character)))

    @property
    def size(self) -> int:
        """The number of ids, the four special ones included."""
        return SPECIALS + len(self._characters)

    @property
    def characters(self) -> tuple[str, ...]:
        """The known characters in the order of their ids."""
        return self._characters

    def encode(self, text: str) -> list[int]:
        """The id of every character, UNK for an unknown one; no BOS, no EOS."""
        return [self._ids.get(character, UNK) for character in text]

    def decode(self, ids: Iterable[int]) -> str:
        """The characters up to the first EOS; PAD, UNK and BOS leave no trace.

        Raises:
            ArgumentError: an id is not below `size`.
        """
        return "".join(self._characters[token - SPECIALS] for token in spoken(ids, self.size))

    def pieces(self, text: str) -> list[str]:
        """The characters themselves, one per id of `encode(text)`, unknown ones too."""
        return list(text)

    def piece(self, token: int) -> str:
        """The character."""
        return self._characters[token - SPECIALS] if token >= SPECIALS else ""

    def word(self, token: int) -> str | None:
        """The character, which is a word in some scripts and a sign in all."""
        return self.piece(token).strip() or None

    def save(self, path: Path) -> None:
        """Write the tokenizer as JSON, with the version of its format."""
        tokenizer_file.write(path, FORMAT, VERSION, {"characters": self._characters})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            DataError: the file is missing or damaged, or a newer attent wrote it.
        """
        characters = tokenizer_file.read(path, FORMAT, VERSION).get("characters")
        if not isinstance(characters, list):
            raise DataError(f"{path} is damaged: its characters must be a list")
        try:
            return cls(characters)
        except ArgumentError as error:
            raise DataError(f"{path} is damaged: {error}") from error
