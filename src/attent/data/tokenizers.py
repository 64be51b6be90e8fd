"""The kinds of tokenizer, and how each is learnt."""

from __future__ import annotations

import math
from collections.abc import Iterable

from attent.data.subword_tokenizer import BpeTokenizer, UnigramTokenizer
from attent.data.tokenizer import SPECIALS, CharTokenizer, Tokenizer
from attent.data.word_tokenizer import WordTokenizer
from attent.errors import ArgumentError, UnknownNameError

KINDS: dict[str, type[Tokenizer]] = {"char": CharTokenizer, "word": WordTokenizer, "bpe": BpeTokenizer, "unigram": UnigramTokenizer}

BYTES = 256
# Pieces grow with the square root of the lines: 29,000 lines have about 5,000, and no text has more than 16,000.
PIECES_PER_ROOT, MOST_PIECES = 30, 16_000


def learn(kind: str, lines: Iterable[str], size: int | None = None) -> Tokenizer:
    """Learn a tokenizer from text.

    Args:
        kind: char, word, bpe or unigram.
        lines: the text, which may be gone through twice: no iterator that is spent after once.
        size: the number of ids; unless given, as many as suit the text (`suitable`). Characters have always all of them.

    Raises:
        ArgumentError: the size cannot be had, or is given for characters.
        UnknownNameError: the kind is unknown.
        DataError: there is no text.
    """
    match kind:
        case "char":
            if size is not None:
                raise ArgumentError(f"a char tokenizer knows every character of its text: it takes no vocabulary size, got {size}")
            return CharTokenizer.learn(lines)
        case "word":
            return WordTokenizer.learn(lines, size)
        case "bpe":
            return BpeTokenizer.learn(lines, size or suitable(lines))
        case "unigram":
            return UnigramTokenizer.learn(lines, size or suitable(lines))
        case _:
            raise UnknownNameError("tokenizer", kind, KINDS)


def suitable(lines: Iterable[str]) -> int:
    """How many ids suit a text cut into pieces: special ids, bytes, its characters, and pieces by the number of its lines."""
    characters: set[str] = set()
    count = 0
    for line in lines:
        characters.update(line)
        count += 1
    return SPECIALS + BYTES + len(characters) + min(math.ceil(PIECES_PER_ROOT * math.sqrt(count)), MOST_PIECES)
