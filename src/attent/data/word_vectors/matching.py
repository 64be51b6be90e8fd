"""Which ids of a vocabulary have a word vector."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from attent.data.batches import Sequences
from attent.data.subword_tokenizer import SPACE
from attent.data.tokenizer import BOS, EOS, PAD, SPECIALS, Tokenizer
from attent.data.word_vectors.vectors import WordVectors

# Sequences that are counted at once.
TOGETHER = 4096


class Matched(NamedTuple):
    """Ids that have a vector.

    Args:
        ids: the ids.
        rows: their vectors' rows.
        lowered: how many of them have that of their lower-cased word, for want of one as they are written.
        parts: how many ids stand for parts of words, which have no vector among those of words.
        size: how many ids there are, but for the special ones.
    """

    ids: list[int]
    rows: list[int]
    lowered: int
    parts: int
    size: int

    def running(self, sequences: Sequences) -> float:
        """The share of running words, or pieces, of a text that have a vector, 0 to 1; unknown words count, BOS and EOS do not."""
        counts = np.zeros(SPECIALS + self.size, np.int64)
        for row in range(0, len(sequences.lengths), TOGETHER):
            rows = np.arange(row, min(row + TOGETHER, len(sequences.lengths)))
            counts += np.bincount(sequences.concatenate(rows), minlength=len(counts))
        counts[[PAD, BOS, EOS]] = 0
        return float(counts[self.ids].sum() / max(counts.sum(), 1))


def wanted(tokenizer: Tokenizer) -> set[str]:
    """The words that a vocabulary may have a vector of: its pieces, its words, and these lower-cased."""
    found: set[str] = set()
    for token in range(SPECIALS, tokenizer.size):
        word = tokenizer.word(token)
        found |= {tokenizer.piece(token), *(() if word is None else (word, word.lower()))}
    return found - {""}


def matched(tokenizer: Tokenizer, vectors: WordVectors) -> Matched:
    """The ids whose word has a vector, as it is written or else lower-cased.

    Vectors of pieces, which write "▁" for a space as a vocabulary of pieces does, are found by piece; "▁" alone may be a word of
    any file.
    """
    ids = range(SPECIALS, tokenizer.size)
    by_piece = any(len(piece) > 1 and piece.startswith(SPACE) and piece in vectors for piece in map(tokenizer.piece, ids))
    found = list(_found(tokenizer, vectors, by_piece))
    parts = 0 if by_piece else sum(tokenizer.word(token) is None and bool(tokenizer.piece(token)) for token in ids)
    tokens, rows, lowered = zip(*found, strict=True) if found else ((), (), ())
    return Matched(list(tokens), list(rows), sum(lowered), parts, len(ids))


def _found(tokenizer: Tokenizer, vectors: WordVectors, by_piece: bool) -> Iterator[tuple[int, int, bool]]:
    for token in range(SPECIALS, tokenizer.size):
        name = tokenizer.piece(token) if by_piece else tokenizer.word(token)
        if not name:
            continue
        if name in vectors:
            yield token, vectors.rows[name], False
        elif name.lower() in vectors:
            yield token, vectors.rows[name.lower()], True
