"""Word vectors in the formats of GloVe, word2vec and fastText: reading, writing, lookup, and matching a vocabulary."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attent.attention.attend import attend
from attent.errors import ArgumentError, DataError, ShapeError, reraise
from attent.text.readers import open_file
from attent.text.tokenizer import SPECIALS, Tokenizer
from attent.text.tokenizers import SPACE
from attent.text.vector_formats import VectorsReport, entries

# White space that ends a field; other kinds are part of a word.
SEPARATOR = re.compile(r"[ \t\n\v\f\r]")
# Reasons in reports for dropping an entry.
NOT_FINITE, REPEATED = "not a finite number (NaN or infinity)", "repeated word"


class WordVectors:
    """Words and their vectors.

        vectors = read("glove.6B.100d.txt")
        vectors["king"] - vectors["man"] + vectors["woman"]
        vectors.nearest("dog")

    Args:
        words: distinct words.
        vectors: floating-point vectors of these words, (N, D).
        report: the report on the file that they were read from, if any.

    Raises:
        ShapeError: the numbers of vectors and words differ.
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
        """The number of features D of a vector."""
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.rows

    def __getitem__(self, word: str) -> Tensor:
        """Return the vector of a word, (D,), as a view.

        Raises:
            ArgumentError: the word has no vector.
        """
        if word not in self.rows:
            lower = f", only {word.lower()!r}" if word.lower() in self.rows else ""
            raise ArgumentError(f"no vector for {word!r}{lower}")
        return self.vectors[self.rows[word]]

    def nearest(self, to: str | Tensor, n: int = 10) -> list[tuple[str, float]]:
        """Return the words whose vectors have the highest cosine with a query, by attention with the score "cosine".

        Args:
            to: a word, which is excluded from the result, or a vector, (D,).
            n: the number of words.

        Returns:
            The words and their cosines, the nearest first.

        Raises:
            ArgumentError: the word has no vector, or n is not from 1 to the number of words.
            ShapeError: the vector has a different width.
        """
        query = self[to] if isinstance(to, str) else to
        if query.shape != (self.width,):
            raise ShapeError(f"a vector must be ({self.width},), got {tuple(query.shape)}")
        own_row = self.rows[to] if isinstance(to, str) else None
        candidates = len(self) - (own_row is not None)
        if not 1 <= n <= candidates:
            raise ArgumentError(f"n must be from 1 to {candidates}, got {n}")
        # only the attention weights matter, not the values
        _, attention_map = attend(
            query[None],
            self.vectors,
            self.vectors.new_zeros(len(self), 1),
            score="cosine",
            normalizer="identity",
            return_map=True,
        )
        keys, cosines = (result.flatten().tolist() for result in attention_map.top(n + (own_row is not None)))
        return [
            (self.words[int(key)], float(cosine)) for key, cosine in zip(keys, cosines, strict=True) if key != own_row
        ][:n]

    def __repr__(self) -> str:
        return f"WordVectors({len(self):,} words of {self.width} numbers)"


def read(path: Path | str, words: Iterable[str] | None = None) -> WordVectors:
    """Read word vectors; the file is gzipped if its name ends in .gz.

    The formats are GloVe's text, the text of word2vec and fastText (.vec), and word2vec's binary format. The format is
    detected from the content. Only one copy of the vectors is held in memory. If a word has several
    vectors, the first is kept; lines that are not a word and a vector are skipped; the report counts both.

    Sources: Mikolov et al. (2013), arXiv 1301.3781; Pennington et al. (2014), "GloVe"; Bojanowski et al. (2017), arXiv
    1607.04606.

    Args:
        path: the file.
        words: the words to keep; damage in the lines of other words goes undetected. All words by default.

    Raises:
        DataError: the file cannot be read, is detectably cut off, or contains no word vectors.
    """
    report = VectorsReport(str(path))
    vocabulary = None if words is None else frozenset(words)
    names = None if vocabulary is None else frozenset(_lookup_names(vocabulary))
    rows, numbers = dict[str, int](), bytearray()
    with open_file(path) as stream:
        for number, name, vector in entries(stream, report, names):
            word = name.decode(errors="replace")
            # a line may begin like a word of several parts
            if vocabulary is not None and word not in vocabulary:
                continue
            if not np.isfinite(vector).all():
                report.drop(NOT_FINITE, number)
            elif word in rows:
                report.drop(REPEATED, number)
            else:
                rows[word] = len(rows)
                numbers += vector.tobytes()
    report.words = len(rows)
    if vocabulary is None and not rows:
        raise DataError(f"no word vectors: {report.one_line()}")
    # a view, so that there are never two copies of all numbers
    vectors = torch.from_numpy(np.frombuffer(numbers, np.float32).reshape(len(rows), report.width))
    return WordVectors(list(rows), vectors, report)


def write(path: Path | str, vectors: WordVectors) -> None:
    """Write word vectors in word2vec's text format, each number with the fewest digits that restore its float32 value.

    Raises:
        ArgumentError: a word is empty or contains a space.
        DataError: the file cannot be written.
    """
    if unwritable := [word for word in vectors.words if not is_writable(word)]:
        raise ArgumentError(f"the word {unwritable[0]!r} cannot be written: the format has no spaces within words")
    rows = zip(vectors.words, vectors.vectors.detach().float().cpu().numpy(), strict=True)
    with (
        reraise(DataError, f"{path} cannot be written", OSError),
        Path(path).open("w", encoding="utf-8", newline="") as file,
    ):
        file.write(f"{len(vectors)} {vectors.width}\n")
        file.writelines(f"{word} {' '.join(vector.astype(str))}\n" for word, vector in rows)


def is_writable(word: str) -> bool:
    """Return whether a word can be written as one field of a line."""
    return bool(word) and SEPARATOR.search(word) is None


def _lookup_names(words: Iterable[str]) -> Iterator[bytes]:
    """Yield the bytes of words, whole as in binary files and up to the first space as in lines of text."""
    for word in words:
        name = word.encode(errors="replace")
        yield from (name, *name.split(None, 1)[:1])


class VocabularyMatch(NamedTuple):
    """The ids of a vocabulary that have a vector.

    Args:
        ids: the ids that have a vector.
        rows: the rows of their vectors.
        size: the number of ids, without special ids.
    """

    ids: list[int]
    rows: list[int]
    size: int


def vocabulary_vectors(tokenizer: Tokenizer, embeddings: Tensor) -> tuple[WordVectors, int]:
    """Return the embedding of each word in a vocabulary, or of each piece in a subword vocabulary.

    If several ids have the same word, such as a sign with and without a space before it, the lowest id is used.

    Args:
        tokenizer: the tokenizer of the vocabulary.
        embeddings: the embeddings by id, (V, E).

    Returns:
        The vectors, and the number of ids that are left out, not counting special ids.
    """
    ids = range(SPECIALS, tokenizer.size)
    by_piece = any(tokenizer.piece(token).startswith(SPACE) for token in ids)
    rows: dict[str, int] = {}
    for token in ids:
        word = tokenizer.piece(token) if by_piece else tokenizer.word(token)
        if word and is_writable(word):
            rows.setdefault(word, token)
    return WordVectors(list(rows), embeddings[list(rows.values())]), len(ids) - len(rows)


def candidate_words(tokenizer: Tokenizer) -> set[str]:
    """Return the words whose vectors can match a vocabulary: its pieces, its words, and its words lower-cased."""
    candidates: set[str] = set()
    for token in range(SPECIALS, tokenizer.size):
        word = tokenizer.word(token)
        candidates |= {tokenizer.piece(token), *(() if word is None else (word, word.lower()))}
    return candidates - {""}


def match_vocabulary(tokenizer: Tokenizer, vectors: WordVectors) -> VocabularyMatch:
    """Match ids with the vectors of their words, as spelled or else lower-cased.

    Vectors of subword pieces, which have "▁" for a space as subword vocabularies do, are matched by piece; a single
    "▁" does not indicate them, since it can be a word in any file.
    """
    ids = range(SPECIALS, tokenizer.size)
    by_piece = any(
        len(piece) > 1 and piece.startswith(SPACE) and piece in vectors for piece in map(tokenizer.piece, ids)
    )
    rows = dict[int, int]()
    for token in ids:
        name = (tokenizer.piece(token) if by_piece else tokenizer.word(token)) or ""
        if spelling := next((form for form in (name, name.lower()) if form in vectors), None):
            rows[token] = vectors.rows[spelling]
    return VocabularyMatch([*rows], [*rows.values()], len(ids))
