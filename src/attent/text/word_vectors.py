"""Word vectors in the formats of GloVe, word2vec and fastText: reading, writing, lookup, and matching a vocabulary."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attent.attention.attend import attend
from attent.errors import ArgumentError, DataError, ShapeError
from attent.text.batches import Sequences
from attent.text.readers import BUFFER, limit_unpacking
from attent.text.tokenizer import BOS, EOS, PAD, SPECIALS, Tokenizer
from attent.text.tokenizers import SPACE
from attent.text.vector_formats import (
    GZIPPED,
    Block,
    VectorsReport,
    binary_blocks,
    format_entry,
    format_of,
    is_binary,
    is_writable,
    text_blocks,
)

# Number of sequences counted at a time.
BLOCK_SIZE = 4096
GZIP = b"\x1f\x8b"
# Reasons in reports for dropping or noting an entry.
NOT_FINITE, REPEATED = "not a finite number (NaN or infinity)", "repeated word"
NOT_UTF8 = "word that is not UTF-8, its bytes replaced by �"


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


def read(path: Path | str, words: Iterable[str] | None = None) -> WordVectors:
    """Read word vectors, which may be gzipped.

    The formats are GloVe's text, the text of word2vec and fastText (.vec), and word2vec's binary format. The format is
    detected from the content, not the file name. Only one copy of the vectors is held in memory. If a word has several
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
    rows, numbers = dict[str, int](), bytearray()
    with _blocks(path, report, vocabulary) as blocks:
        for block in blocks:
            numbers += block.vectors[_new_rows(block, rows, vocabulary, report)].tobytes()
    report.words = len(rows)
    if vocabulary is None and not rows:
        raise DataError(f"no word vectors: {report.one_line()}")
    # a view, so that there are never two copies of all numbers
    vectors = torch.from_numpy(np.frombuffer(numbers, np.float32).reshape(len(rows), report.width))
    return WordVectors(list(rows), vectors, report)


def width_of(path: Path | str) -> int:
    """Return the number of features of the vectors in a file, reading only its beginning.

    Raises:
        DataError: as for `read`, if the fault is in the beginning.
    """
    report = VectorsReport(str(path))
    with _blocks(path, report) as blocks:
        next(blocks, None)
    return report.width


def write(path: Path | str, vectors: WordVectors, form: str | None = None, *, gzipped: bool | None = None) -> None:
    """Write word vectors, in float32.

    Args:
        path: the file.
        vectors: the words and their vectors.
        form: glove (a word and its numbers in each line), word2vec (the same after a header, like fastText's .vec) or
            binary (word2vec's); by default chosen by the extension of the file: .txt, .vec or .bin.
        gzipped: whether to compress the file; by default if its name ends in .gz.

    Raises:
        ArgumentError: the extension is unknown, or a word cannot be written in the format.
        UnknownNameError: the format is unknown.
        DataError: the file cannot be written.
    """
    form = format_of(path) if form is None else form
    gzipped = str(path).endswith(GZIPPED) if gzipped is None else gzipped
    for word in vectors.words:
        if not is_writable(word, form):
            raise ArgumentError(f"the word {word!r} cannot be written in the format {form}")
    rows = zip(vectors.words, vectors.vectors.detach().float().cpu().numpy(), strict=True)
    try:
        with gzip.open(path, "wb") if gzipped else Path(path).open("wb") as file:
            if form != "glove":
                file.write(f"{len(vectors)} {vectors.width}\n".encode("ascii"))
            file.writelines(format_entry(word.encode(), vector, form) for word, vector in rows)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def _blocks(
    path: Path | str, report: VectorsReport, vocabulary: Collection[str] | None = None
) -> Iterator[Iterator[Block]]:
    """Open a file, detect from its first bytes whether it is gzipped, and parse it."""
    try:
        with io.BufferedReader(io.FileIO(path), BUFFER) as packed, _unpack(packed, path) as stream:
            parse = binary_blocks if is_binary(stream.peek()) else text_blocks
            yield parse(stream, report, vocabulary)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is cut off or damaged: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _unpack(file: Any, path: Path | str) -> Any:
    if not file.peek().startswith(GZIP):
        return file
    unpacked: Any = gzip.open(file)  # noqa: SIM115
    return limit_unpacking(unpacked, os.fstat(file.fileno()).st_size, path)


def _new_rows(
    block: Block, rows: dict[str, int], vocabulary: Collection[str] | None, report: VectorsReport
) -> list[int]:
    """Return the indices of a block's entries to keep, and assign the next rows to their words."""
    indices: list[int] = []
    damaged = set(np.flatnonzero(~np.isfinite(block.vectors).all(1)).tolist())
    for index, (number, name) in enumerate(zip(block.numbers, block.words, strict=True)):
        word = name.decode(errors="replace")
        if vocabulary is not None and word not in vocabulary:
            report.skipped += 1
        elif index in damaged:
            report.drop(NOT_FINITE, number)
        elif word in rows:
            report.drop(REPEATED, number)
        else:
            rows[word] = len(rows)
            indices.append(index)
            if "\ufffd" in word and word.encode() != name:
                report.note(NOT_UTF8, number)
    return indices


class VocabularyMatch(NamedTuple):
    """The ids of a vocabulary that have a vector.

    Args:
        ids: the ids that have a vector.
        rows: the rows of their vectors.
        lowercased: the number of ids that use the vector of the lower-cased word because the original has none.
        parts: the number of ids that are parts of words, which vectors of whole words do not cover.
        size: the number of ids, without special ids.
    """

    ids: list[int]
    rows: list[int]
    lowercased: int
    parts: int
    size: int

    def text_coverage(self, sequences: Sequences) -> float:
        """Return the share of a text's tokens with a vector, 0 to 1; unknown words count, BOS and EOS do not."""
        counts = np.zeros(SPECIALS + self.size, np.int64)
        for begin in range(0, len(sequences.lengths), BLOCK_SIZE):
            rows = np.arange(begin, min(begin + BLOCK_SIZE, len(sequences.lengths)))
            counts += np.bincount(sequences.concatenate(rows), minlength=len(counts))
        counts[[PAD, BOS, EOS]] = 0
        return float(counts[self.ids].sum() / max(counts.sum(), 1))


def vocabulary_vectors(
    tokenizer: Tokenizer, embeddings: Tensor, can_write: Callable[[str], bool]
) -> tuple[WordVectors, int]:
    """Return the embedding of each word in a vocabulary, or of each piece in a subword vocabulary.

    If several ids have the same word, such as a sign with and without a space before it, the lowest id is used.

    Args:
        tokenizer: the tokenizer of the vocabulary.
        embeddings: the embeddings by id, (V, E).
        can_write: returns whether to keep a word, such as `attent.text.vector_formats.is_writable` for a format.

    Returns:
        The vectors, and the number of ids that are left out, not counting special ids.
    """
    ids = range(SPECIALS, tokenizer.size)
    by_piece = any(tokenizer.piece(token).startswith(SPACE) for token in ids)
    rows: dict[str, int] = {}
    for token in ids:
        word = tokenizer.piece(token) if by_piece else tokenizer.word(token)
        if word and can_write(word):
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
