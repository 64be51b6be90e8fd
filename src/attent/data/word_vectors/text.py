"""Word vectors as text: a word and its numbers in each line, perhaps behind a line with the number of words and of their features.

GloVe writes no such header, word2vec and fastText do. Fields stand between spaces or tabs; a word may have spaces within, as some of
GloVe's have.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np

from attent.data import unpacking
from attent.data.word_vectors.gathering import Block
from attent.data.word_vectors.report import EMPTY_LINE, NO_NUMBER, OTHER_WIDTH, VectorsReport
from attent.errors import DataError

# numbers of more digits are no counts
HEADER = re.compile(rb"\s*(\d{1,18})[ \t]+(\d{1,9})\s*")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Lines from which the width is told, and lines whose numbers are read at once.
AHEAD, TOGETHER = 100, 512
DECIMAL = re.compile(rb"[-+]?(\d*\.\d+(e[-+]?\d+)?|\d+e[-+]?\d+|nan|inf)", re.IGNORECASE)

Entry = tuple[bytes, np.ndarray]


class Shape(NamedTuple):
    """What a file's first lines tell.

    Args:
        width: numbers of each vector.
        header: the numbers of words and of features that the first line names, if it does.
    """

    width: int
    header: tuple[int, int] | None


def shape(ahead: Sequence[bytes]) -> Shape | None:
    """The shape of a file that begins with these lines, from which a byte order mark has been taken.

    Vectors have as many numbers as most lines have, or as the header says if any line has so many.

    Returns:
        None where no line is a word and its vector.
    """
    header = _header(ahead)
    lines = ahead if header is None else ahead[1:]
    widths = [width for width, _ in Counter(len(line.split()) - 1 for line in lines).most_common() if width > 0]
    if header is not None and header[1] in widths:
        widths.insert(0, header[1])
    width = next((width for width in widths if fits(lines, width)), None)
    return None if width is None else Shape(width, header)


def fits(lines: Iterable[bytes], width: int) -> bool:
    """Whether any of these lines is a word and so many numbers."""
    return any(isinstance(_entry(line, width), tuple) for line in lines)


def blocks(stream: IO[bytes], report: VectorsReport, wanted: Collection[str] | None = None) -> Iterator[Block]:
    """A file's entries; lines that are none are dropped and reported.

    Args:
        stream: the file.
        report: takes up what was done with the lines.
        wanted: words that are looked for; lines that begin otherwise are not read.

    Raises:
        DataError: none of the first lines is a word and its vector.
    """
    entries = unpacking.lines(stream, report.name)
    ahead = list(itertools.islice(entries, AHEAD))
    if ahead:
        ahead[0] = ahead[0].removeprefix(BYTE_ORDER_MARK)
    found = shape(ahead)
    if found is None:
        raise DataError(
            f"{report.name}: none of the first {len(ahead)} lines is a word and its vector" if ahead else f"{report.name}: empty"
        )
    report.width = found.width
    lines = enumerate(itertools.chain(ahead, entries), start=1)
    if found.header is not None:
        report.lines, _ = next(lines)
    for rows in _together(lines, report, _beginnings(wanted)):
        yield _block(rows, found.width, report)
    if found.header is not None:
        count, width = found.header
        if (came := report.lines - 1) != count:
            report.remarks.append(f"the first line says {count:,} words, and {came:,} lines follow")
        if width != found.width:
            report.remarks.append(f"the first line says {width} numbers a word, and lines have {found.width}")


def _header(ahead: Sequence[bytes]) -> tuple[int, int] | None:
    """What the first line names, unless it is a word of digits and a vector of one number as the second line may be."""
    found = HEADER.fullmatch(ahead[0]) if ahead else None
    if found is None:
        return None
    count, width = map(int, found.groups())
    return None if len(ahead) > 1 and width != 1 and len(ahead[1].split()) == 2 else (count, width)


def _beginnings(wanted: Collection[str] | None) -> frozenset[bytes] | None:
    """The first fields of the lines of some words."""
    return None if wanted is None else frozenset(first for word in wanted for first in word.encode(errors="replace").split(None, 1)[:1])


def _together(
    lines: Iterable[tuple[int, bytes]], report: VectorsReport, beginnings: frozenset[bytes] | None
) -> Iterator[list[tuple[int, bytes]]]:
    """The lines that may be wanted, some at a time, with their numbers."""
    rows: list[tuple[int, bytes]] = []
    for number, line in lines:
        report.lines = number
        if beginnings is not None and (first := line.split(None, 1)[:1]) and first[0] not in beginnings:
            report.unwanted += 1
            continue
        rows.append((number, line))
        if len(rows) == TOGETHER:
            yield rows
            rows = []
    if rows:
        yield rows


def _block(rows: Sequence[tuple[int, bytes]], width: int, report: VectorsReport) -> Block:
    parts = [line.split(None, 1) for _, line in rows]
    if all(len(part) == 2 for part in parts):
        vectors = _numbers([part[1] for part in parts], width)
        if vectors is not None:
            return Block([number for number, _ in rows], [part[0] for part in parts], vectors)
    # one of them is not like the others
    block = Block([], [], np.empty((len(rows), width), np.float32))
    for number, line in rows:
        match _entry(line, width):
            case str(reason):
                report.drop(reason, number)
            case word, vector:
                block.vectors[len(block.words)] = vector
                block.places.append(number)
                block.words.append(word)
    return block._replace(vectors=block.vectors[: len(block.words)])


def _numbers(texts: list[bytes], width: int) -> np.ndarray | None:
    """The numbers in these texts, (N, width); None unless each has as many, and nothing else."""
    try:
        with np.errstate(over="ignore"):
            found = np.loadtxt([text.decode("ascii") for text in texts], np.float32, comments=None, ndmin=2)
    except ValueError:
        return None
    return found if found.shape == (len(texts), width) else None


def _entry(line: bytes, width: int) -> Entry | str:
    """A line's word and vector, or why it has none."""
    fields = line.rsplit(None, width)
    if not fields:
        return EMPTY_LINE
    word = fields[0].strip()
    # what stands before the last numbers is the word, unless it ends in a number itself
    if len(fields) != width + 1 or not word or (len(word.split()) > 1 and DECIMAL.fullmatch(word.split()[-1])):
        return OTHER_WIDTH
    try:
        with np.errstate(over="ignore"):
            return word, np.array([float(text) for text in fields[1:]]).astype(np.float32)
    except ValueError:
        return NO_NUMBER
