"""Words and their vectors, looked up and compared."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from torch import Tensor

from attent.attention.attend import attend
from attent.data.word_vectors.report import VectorsReport
from attent.errors import ArgumentError, ShapeError


class WordVectors:
    """A vector for each of some words.

        found = read("glove.6B.zip/glove.6B.100d.txt")
        found["king"] - found["man"] + found["woman"]
        found.nearest("dog")

    Args:
        words: distinct words.
        vectors: theirs, (N, D), of floating point.
        report: what was read of a file, where they come from one.

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
            twice = next(word for row, word in enumerate(self.words) if rows[word] != row)
            raise ArgumentError(f"words must be distinct, got {twice!r} twice")
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
        """The words whose vectors have the largest cosine with one: where a query looks whose score is "cosine".

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
        own = self.rows[to] if isinstance(to, str) else None
        others = len(self) - (own is not None)
        if not 1 <= n <= others:
            raise ArgumentError(f"n must be from 1 to {others}, got {n}")
        # each key's value is no concern here
        values = self.vectors.new_zeros(len(self), 1)
        _, seen = attend(query[None], self.vectors, values, score="cosine", normalizer="identity", return_map=True)
        keys, cosines = (found.flatten().tolist() for found in seen.top(n + (own is not None)))
        return [(self.words[int(key)], float(cosine)) for key, cosine in zip(keys, cosines, strict=True) if key != own][:n]

    def __repr__(self) -> str:
        return f"WordVectors({len(self):,} words of {self.width} numbers)"
