"""Word vectors as word2vec writes them in binary.

A line has the number of words and of their features; then come each word, a space, and its features as float32, the low byte first.
A line feed may follow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import IO

import numpy as np

from attent.data.word_vectors.gathering import Block
from attent.data.word_vectors.report import VectorsReport
from attent.data.word_vectors.text import HEADER
from attent.errors import DataError

# Bytes that are read at once, and bytes that a word may have.
CHUNK, LONGEST = 2**20, 4096
# Numbers of a vector.
WIDEST = 2**20
# Words whose vectors are handed on at once.
TOGETHER = 512


def blocks(stream: IO[bytes], report: VectorsReport, wanted: Collection[str] | None = None) -> Iterator[Block]:
    """A file's entries.

    Args:
        stream: the file.
        report: takes up what is to be said of the file; `lines` counts words.
        wanted: words that are looked for; the vectors of others are passed over.

    Raises:
        DataError: the header is not one, or the file ends within a word or its vector.
    """
    header = HEADER.fullmatch(stream.readline(LONGEST))
    if header is None or int(header[2]) == 0:
        raise DataError(f"{report.name}: the first line must be the number of words and of their features")
    if int(header[2]) > WIDEST:
        raise DataError(f"{report.name}: the first line says {int(header[2]):,} numbers a word, more than the {WIDEST:,} that are read")
    count, report.width, report.unit = int(header[1]), int(header[2]), "word"
    names = None if wanted is None else frozenset(word.encode(errors="replace") for word in wanted)
    places: list[int] = []
    words: list[bytes] = []
    vectors: list[bytes] = []
    for word, vector in _entries(stream, count, report):
        if names is not None and word not in names:
            report.unwanted += 1
            continue
        places.append(report.lines)
        words.append(word)
        vectors.append(vector)
        if len(words) == TOGETHER:
            yield _block(places, words, vectors, report.width)
            places, words, vectors = [], [], []
    yield _block(places, words, vectors, report.width)


def _entries(stream: IO[bytes], count: int, report: VectorsReport) -> Iterator[tuple[bytes, bytes]]:
    size, buffer, place = 4 * report.width, b"", 0
    while True:
        if len(buffer) - place < LONGEST + size:
            buffer, place = buffer[place:] + stream.read(max(CHUNK, LONGEST + size)), 0
        over = not buffer[place : place + LONGEST].strip(b"\n")
        if report.lines == count or over:
            break
        end = buffer.find(b" ", place, place + LONGEST)
        vector = buffer[end + 1 : end + 1 + size]
        if end < 0 or len(vector) < size:
            whole = f"{report.lines:,} of {count:,} words"
            raise DataError(f"{report.name} is cut off or damaged: it holds {whole}, and another that is not whole")
        report.lines += 1
        yield buffer[place:end].lstrip(b"\n"), vector
        place = end + 1 + size
    if report.lines != count:
        report.remarks.append(f"the first line says {count:,} words, and there are {report.lines:,}")
    elif not over:
        report.remarks.append(f"more follows behind the {count:,} words that the first line says, and was not read")


def _block(places: list[int], words: list[bytes], vectors: list[bytes], width: int) -> Block:
    return Block(places, words, np.frombuffer(b"".join(vectors), "<f4").reshape(-1, width).astype(np.float32))
