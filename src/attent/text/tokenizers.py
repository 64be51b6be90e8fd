"""The kinds of tokenizer by name, and learning one from text."""

from __future__ import annotations

import math
from collections.abc import Iterable

from attent.errors import ArgumentError, UnknownNameError
from attent.text.subword_tokenizer import BpeTokenizer, SentencePieceTokenizer, UnigramTokenizer
from attent.text.tokenizer import SPECIALS, CharTokenizer, Tokenizer, WordTokenizer

LEARNT: dict[str, type[Tokenizer]] = {
    "char": CharTokenizer,
    "word": WordTokenizer,
    "bpe": BpeTokenizer,
    "unigram": UnigramTokenizer,
}
# Those of runs, imported ones too.
KINDS = LEARNT | {"sentencepiece": SentencePieceTokenizer}

BYTES = 256
# Pieces grow with the square root of the lines: 29,000 lines have about 5,000, and no text has more than 16,000.
PIECES_PER_ROOT, MAX_PIECES = 30, 16_000


def learn(kind: str, lines: Iterable[str], size: int | None = None) -> Tokenizer:
    """Learn a tokenizer from text.

    Args:
        kind: char, word, bpe or unigram.
        lines: the text; iterated over twice, so no exhausted iterator.
        size: the number of ids; unless given, `suitable_size` of the text. A char tokenizer has an id for every
            character.

    Raises:
        ArgumentError: the text allows no such size, or it is given for characters.
        UnknownNameError: the kind is unknown.
        DataError: there is no text.
    """
    match kind:
        case "char":
            if size is not None:
                raise ArgumentError(
                    f"a char tokenizer knows every character of its text: it takes no vocabulary size, got {size}"
                )
            return CharTokenizer.learn(lines)
        case "word":
            return WordTokenizer.learn(lines, size)
        case "bpe":
            return BpeTokenizer.learn(lines, size or suitable_size(lines))
        case "unigram":
            return UnigramTokenizer.learn(lines, size or suitable_size(lines))
        case _:
            raise UnknownNameError("tokenizer", kind, LEARNT)


def suitable_size(lines: Iterable[str]) -> int:
    """Return a vocabulary size for a text in pieces.

    Special ids, bytes, its characters, and pieces by the number of its lines.
    """
    characters: set[str] = set()
    count = 0
    for line in lines:
        characters.update(line)
        count += 1
    return SPECIALS + BYTES + len(characters) + min(math.ceil(PIECES_PER_ROOT * math.sqrt(count)), MAX_PIECES)
