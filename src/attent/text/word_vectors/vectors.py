"""Word vectors in memory: look-up, nearest words, and the ids of a vocabulary that have a vector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from torch import Tensor

from attent.attention.attend import attend
from attent.errors import ArgumentError, ShapeError
from attent.text.batches import Sequences
from attent.text.report import VectorsReport
from attent.text.subword_tokenizer import SPACE
from attent.text.tokenizer import BOS, EOS, PAD, SPECIALS, Tokenizer

# Sequences that are counted at a time.
BLOCK_SIZE = 4096


class WordVectors:
    """A vector for each of some words.

        vectors = read("glove.6B.zip/glove.6B.100d.txt")
        vectors["king"] - vectors["man"] + vectors["woman"]
        vectors.nearest("dog")

    Args:
        words: distinct words.
        vectors: of these words, (N, D), of floating point.
        report: on the file that they were read from, if any.

    Raises:
        ShapeError: there are not as many vectors as words.
        ArgumentError: a word occurs twice.
    """

    def __init__(self, words: Sequence[str], vectors: Tensor, report: VectorsReport | None = None) -> None:
        if vectors.dim() != 2 or len(vectors) != len(words):
            raise ShapeError(f"vectors must be (N, D), one for each of {len(words)} words, got {tuple(vectors.shape)}")
        self.words, self.vectors, self.report = words, vectors, report

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each word's vector."""
        rows = {word: row for row, word in enumerate(self.words)}
        if len(rows) != len(self.words):
            duplicate = next(word for row, word in enumerate(self.words) if rows[word] != row)
            raise ArgumentError(f"words must be distinct, got {duplicate!r} twice")
        return rows

    @property
    def width(self) -> int:
        """The numbers D of a vector."""
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.rows

    def __getitem__(self, word: str) -> Tensor:
        """The vector of a word, (D,), a view.

        Raises:
            ArgumentError: it has none.
        """
        if word not in self.rows:
            lower = f", only {word.lower()!r}" if word.lower() in self.rows else ""
            raise ArgumentError(f"no vector of {word!r}{lower}")
        return self.vectors[self.rows[word]]

    def nearest(self, to: str | Tensor, n: int = 10) -> list[tuple[str, float]]:
        """Return the words whose vectors have the largest cosine with a query: its attention with the score "cosine".

        Args:
            to: a word, which is left out of the answer, or a vector (D,).
            n: how many words.

        Returns:
            The words and their cosines, the nearest first.

        Raises:
            ArgumentError: the word has no vector, or n is not from 1 to the number of words.
            ShapeError: the vector is of another width.
        """
        query = self[to] if isinstance(to, str) else to
        if query.shape != (self.width,):
            raise ShapeError(f"a vector must be ({self.width},), got {tuple(query.shape)}")
        own_row = self.rows[to] if isinstance(to, str) else None
        candidates = len(self) - (own_row is not None)
        if not 1 <= n <= candidates:
            raise ArgumentError(f"n must be from 1 to {candidates}, got {n}")
        # only the weights matter
        values = self.vectors.new_zeros(len(self), 1)
        _, attention_map = attend(
            query[None], self.vectors, values, score="cosine", normalizer="identity", return_map=True
        )
        keys, cosines = (result.flatten().tolist() for result in attention_map.top(n + (own_row is not None)))
        return [
            (self.words[int(key)], float(cosine)) for key, cosine in zip(keys, cosines, strict=True) if key != own_row
        ][:n]

    def __repr__(self) -> str:
        return f"WordVectors({len(self):,} words of {self.width} numbers)"


class VocabularyMatch(NamedTuple):
    """Ids of a vocabulary that have a vector.

    Args:
        ids: the ids.
        rows: of their vectors.
        lowercased: how many of them use the vector of their lower-cased word, for want of one as they are written.
        parts: how many ids are parts of words, which have no vector among those of words.
        size: the number of ids without the special ones.
    """

    ids: list[int]
    rows: list[int]
    lowercased: int
    parts: int
    size: int

    def text_coverage(self, sequences: Sequences) -> float:
        """Return the share of a text's tokens that have a vector, 0 to 1; unknown words count, BOS and EOS do not."""
        counts = np.zeros(SPECIALS + self.size, np.int64)
        for begin in range(0, len(sequences.lengths), BLOCK_SIZE):
            rows = np.arange(begin, min(begin + BLOCK_SIZE, len(sequences.lengths)))
            counts += np.bincount(sequences.concatenate(rows), minlength=len(counts))
        counts[[PAD, BOS, EOS]] = 0
        return float(counts[self.ids].sum() / max(counts.sum(), 1))


def candidate_words(tokenizer: Tokenizer) -> set[str]:
    """Return the words that may have a vector for a vocabulary: its pieces, its words, and these lower-cased."""
    candidates: set[str] = set()
    for token in range(SPECIALS, tokenizer.size):
        word = tokenizer.word(token)
        candidates |= {tokenizer.piece(token), *(() if word is None else (word, word.lower()))}
    return candidates - {""}


def match_vocabulary(tokenizer: Tokenizer, vectors: WordVectors) -> VocabularyMatch:
    """Match ids with the vectors of their words, as they are written or else lower-cased.

    Vectors of subword pieces, which write "▁" for a space as a vocabulary of pieces does, are matched by piece; "▁"
    alone may be a word of any file.
    """
    ids = range(SPECIALS, tokenizer.size)
    by_piece = any(
        len(piece) > 1 and piece.startswith(SPACE) and piece in vectors for piece in map(tokenizer.piece, ids)
    )
    matches = list(_matches(tokenizer, vectors, by_piece))
    parts = 0 if by_piece else sum(tokenizer.word(token) is None and bool(tokenizer.piece(token)) for token in ids)
    tokens, rows, lowercased = zip(*matches, strict=True) if matches else ((), (), ())
    return VocabularyMatch(list(tokens), list(rows), sum(lowercased), parts, len(ids))


def _matches(tokenizer: Tokenizer, vectors: WordVectors, by_piece: bool) -> Iterator[tuple[int, int, bool]]:
    for token in range(SPECIALS, tokenizer.size):
        name = tokenizer.piece(token) if by_piece else tokenizer.word(token)
        if not name:
            continue
        if name in vectors:
            yield token, vectors.rows[name], False
        elif name.lower() in vectors:
            yield token, vectors.rows[name.lower()], True
