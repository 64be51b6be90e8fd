"""Parsing of word vectors: text formats (GloVe, word2vec, fastText) and word2vec's binary format.

Text: each line has a word and its numbers, separated by spaces or tabs; a word may contain spaces, as some of GloVe's
do. word2vec and fastText write a first line with the numbers of words and of features; GloVe does not.

Binary: the same first line; then each word, a space and its features as little-endian float32, optionally followed by
a line feed.
"""

import io
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attent.errors import DataError
from attent.text.readers import EMPTY_LINE, limited_lines, open_file
from attent.text.text import ReadReport

# Reasons in reports for dropping an entry.
OTHER_WIDTH, NO_NUMBER = "a different number of values than the others", "something other than a number"
# The numbers of words and of features.
HEADER = re.compile(rb"\s*(\d+)[ \t]+(\d+)\s*")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
DECIMAL = re.compile(rb"[-+]?(\d*\.\d+(e[-+]?\d+)?|\d+e[-+]?\d+|nan|inf)", re.IGNORECASE)
# Maximum number of words and width of a vector in a header.
MAX_WORDS, MAX_WIDTH = 2**40, 2**20
# Maximum bytes of a word in a binary file, and of a header.
MAX_WORD = 4096

# The number of a line, or of a word in a binary file, from 1; the word; its vector, (D,), float32.
Entry = tuple[int, bytes, np.ndarray]


@dataclass
class VectorsReport(ReadReport):
    """A report on a file of word vectors.

    Args:
        unit: the unit counted and numbered from 1: lines, including a header, or words in a binary file.
        words: the number of words with a vector.
        width: the number of values in each vector.
        declared: the number of words according to the header, if there is one.
    """

    unit: str = "line"
    words: int = 0
    width: int = 0
    declared: int | None = None

    def summary(self) -> list[str]:
        """Return the lines of a human-readable report."""
        counts = f"{self.lines:,} {self.unit}s read, {self.words:,} vectors of {self.width} numbers kept"
        if self.declared not in (None, self.lines - (self.unit == "line")):
            counts += f"; the first line says {self.declared:,} words"
        return self._summary(counts, self.unit, "kept")


def entries(stream: io.BufferedReader, report: VectorsReport, words: Collection[bytes] | None) -> Iterator[Entry]:
    """Parse a file, whose format is detected from its first bytes.

    Args:
        stream: the file, at its beginning.
        report: records the width and dropped lines.
        words: the words to parse, or their parts before the first space; others are skipped. All by default.

    Raises:
        DataError: the file has no word vectors at its beginning, or a binary file ends within a word or its vector.
    """
    first, *lines = stream.peek().removeprefix(BYTE_ORDER_MARK).split(b"\n")
    header = HEADER.fullmatch(first)
    if header is None:
        return _text_entries(stream, report, words)
    # a float, since Python refuses to read an integer of thousands of digits
    count, width = float(header[1]), float(header[2])
    if len(stream.readline(MAX_WORD)) == MAX_WORD or count > MAX_WORDS or not 0 < width <= MAX_WIDTH:
        raise DataError(
            f"{report.name}: the first line must be the number of words and the number of features, at most "
            f"{MAX_WORDS:,} and {MAX_WIDTH:,}"
        )
    report.declared, report.width = int(count), int(width)
    # binary numbers have no lines of a word and its numbers
    is_text = any(isinstance(_parse_line(line, report.width), tuple) for line in lines)
    return (_text_entries if is_text else _binary_entries)(stream, report, words)


def width_of(path: Path | str) -> int:
    """Return the number of features of the vectors in a file, reading only its beginning.

    Raises:
        DataError: as for `attent.text.word_vectors.read`, if the fault is in the beginning.
    """
    report = VectorsReport(str(path))
    with open_file(path) as stream:
        next(entries(stream, report, None), None)
    return report.width


def _text_entries(stream: io.BufferedReader, report: VectorsReport, words: Collection[bytes] | None) -> Iterator[Entry]:
    lines = limited_lines(stream, report.name)
    if report.declared is None:
        first = next(lines, b"").removeprefix(BYTE_ORDER_MARK)
        lines, fields = itertools.chain([first], lines), first.split()
        numbers = itertools.takewhile(lambda field: _parse_numbers([field]) is not None, reversed(fields))
        report.width = min(sum(1 for _ in numbers), len(fields) - 1)
        if report.width < 1:
            raise DataError(f"{report.name}: line 1 is not a word and its vector" if first else f"{report.name}: empty")
    else:
        report.lines = 1
    for line in lines:
        report.lines += 1
        if words is not None and (name := line.split(None, 1)[:1]) and name[0] not in words:
            continue
        match _parse_line(line, report.width):
            case str(reason):
                report.drop(reason, report.lines)
            case word, vector:
                yield report.lines, word, vector


def _parse_line(line: bytes, width: int) -> tuple[bytes, np.ndarray] | str:
    """Parse a line into a word and its vector, or return the reason for dropping it."""
    fields = line.rsplit(None, width)
    if not fields:
        return EMPTY_LINE
    word = fields[0].strip()
    # the word is everything before the last `width` numbers, unless that ends in a number itself
    if len(fields) != width + 1 or (len(word.split()) > 1 and DECIMAL.fullmatch(word.split()[-1])):
        return OTHER_WIDTH
    vector = _parse_numbers(fields[1:])
    return NO_NUMBER if vector is None else (word, vector)


def _parse_numbers(fields: Sequence[bytes]) -> np.ndarray | None:
    try:
        with np.errstate(over="ignore"):
            return np.array([*map(float, fields)]).astype(np.float32)
    except ValueError:
        return None


def _binary_entries(
    stream: io.BufferedReader, report: VectorsReport, words: Collection[bytes] | None
) -> Iterator[Entry]:
    assert report.declared is not None
    report.unit = "word"
    while report.lines < report.declared and (name := _read_word(stream)):
        vector = stream.read(4 * report.width)
        if len(vector) < 4 * report.width or len(name) == MAX_WORD:
            raise DataError(
                f"{report.name} is cut off or damaged: it contains {report.lines:,} of {report.declared:,} words and "
                "an incomplete one"
            )
        report.lines += 1
        if words is None or name in words:
            yield report.lines, name, np.frombuffer(vector, "<f4")


def _read_word(stream: io.BufferedReader) -> bytes:
    """Read the bytes before the next space; none at the end of the file."""
    word = bytearray()
    while len(word) < MAX_WORD and (byte := stream.read(1)) not in b" ":
        word += byte
    return bytes(word).lstrip(b"\n")
