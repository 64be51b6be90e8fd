"""Parsing and writing of word vectors: text formats (GloVe, word2vec, fastText) and word2vec's binary format.

Text: each line has a word and its numbers, separated by spaces or tabs; a word may contain spaces, as some of GloVe's
do. word2vec and fastText write a first line with the numbers of words and of features; GloVe does not.

Binary: the same first line; then each word, a space and its features as little-endian float32, optionally followed by
a line feed.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from attent.errors import ArgumentError, DataError, check_known
from attent.text.readers import EMPTY_LINE, limited_lines
from attent.text.text import ReadReport

# Reasons in reports for dropping an entry.
OTHER_WIDTH, NO_NUMBER = "a different number of values than the others", "something other than a number"
# The numbers of words and of features; longer digit strings are not counts.
HEADER = re.compile(rb"\s*(\d{1,18})[ \t]+(\d{1,9})\s*")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# In a file without a header, these indicate that it is not text.
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
# Lines from which the width is inferred.
SAMPLE_LINES = 100
# Number of entries in a block.
BLOCK_SIZE = 512
DECIMAL = re.compile(rb"[-+]?(\d*\.\d+(e[-+]?\d+)?|\d+e[-+]?\d+|nan|inf)", re.IGNORECASE)
# Number of bytes of a binary file read at a time.
CHUNK = 2**20
# Maximum bytes of a word in a binary file.
MAX_WORD = 4096
# Maximum width of a vector in a binary file.
MAX_WIDTH = 2**20

Entry = tuple[bytes, np.ndarray]
GZIPPED = ".gz"
# White space that ends a field; other kinds are part of a word.
SPACE = re.compile(r"[ \t\n\v\f\r]")
# The format by the extension of a file name, without .gz.
ENDINGS = {".txt": "glove", ".vec": "word2vec", ".bin": "binary"}


@dataclass
class VectorsReport(ReadReport):
    """A report on a file of word vectors.

    Args:
        unit: the unit counted and numbered from 1: lines, including a header, or words in a binary file.
        words: the number of words with a vector.
        width: the number of values in each vector.
        skipped: the number of entries for words outside the vocabulary.
        remarks: remarks on the file as a whole.
    """

    unit: str = "line"
    words: int = 0
    width: int = 0
    skipped: int = 0
    remarks: list[str] = field(default_factory=list)

    def summary(self) -> list[str]:
        """Return the lines of a human-readable report."""
        skipped = f", {self.skipped:,} not needed" * bool(self.skipped)
        counts = f"{self.lines:,} {self.unit}s read, {self.words:,} vectors of {self.width} numbers kept{skipped}"
        first, *rest = self._summary(counts, self.unit, "kept")
        return [first, *(f"  {remark}" for remark in self.remarks), *rest]


class Block(NamedTuple):
    """Consecutive entries of a file.

    Args:
        numbers: the line number of each entry, or the number of the entry in a binary file, from 1.
        words: the words as bytes from the file.
        vectors: their vectors, (N, D), float32.
    """

    numbers: list[int]
    words: list[bytes]
    vectors: np.ndarray


def is_binary(head: bytes) -> bool:
    """Return whether a file with this beginning is binary, that is, has a header not followed by lines of text."""
    first, *lines = head.split(b"\n")[: 1 + SAMPLE_LINES]
    header = HEADER.fullmatch(first)
    return header is not None and infer_width(lines, int(header[2])) is None


def infer_width(lines: Sequence[bytes], header_width: int | None = None) -> int | None:
    """Return the number of values after the word in these lines; None if no line is a word and its vector.

    This is the header's width if any line has that many values, else the most frequent width.
    """
    widths = [width for width, _ in Counter(len(line.split()) - 1 for line in lines).most_common() if width > 0]
    if header_width in widths:
        widths.insert(0, header_width)
    return next(
        (width for width in widths if any(isinstance(_parse_entry(line, width), tuple) for line in lines)), None
    )


def text_blocks(stream: IO[bytes], report: VectorsReport, vocabulary: Collection[str] | None = None) -> Iterator[Block]:
    """Parse a text file; lines that are not entries are dropped and reported.

    Args:
        stream: the file.
        report: records dropped lines.
        vocabulary: the words to read; lines of other words are skipped without parsing.

    Raises:
        DataError: none of the first lines is a word and its vector.
    """
    stream_lines = limited_lines(stream, report.name)
    sample = list(itertools.islice(stream_lines, SAMPLE_LINES))
    if not sample:
        raise DataError(f"{report.name}: empty")
    sample[0] = sample[0].removeprefix(BYTE_ORDER_MARK)
    header = HEADER.fullmatch(sample[0])
    width = infer_width(sample) if header is None else infer_width(sample[1:], int(header[2]))
    if width is None or (header is None and CONTROL.search(b"".join(sample))):
        raise DataError(f"{report.name}: none of the first {len(sample)} lines is a word and its vector")
    report.width = width
    lines = enumerate(itertools.chain(sample, stream_lines), start=1)
    if header is not None:
        report.lines, _ = next(lines)
    entries = _known_lines(lines, report, vocabulary)
    while rows := list(itertools.islice(entries, BLOCK_SIZE)):
        yield _parse_block(rows, width, report)
    if header is not None:
        if (actual := report.lines - 1) != int(header[1]):
            report.remarks.append(f"the first line says {int(header[1]):,} words, but {actual:,} lines follow")
        if width != int(header[2]):
            report.remarks.append(f"the first line says {int(header[2])} numbers per word, but lines have {width}")


def binary_blocks(
    stream: IO[bytes], report: VectorsReport, vocabulary: Collection[str] | None = None
) -> Iterator[Block]:
    """Parse a binary file.

    Args:
        stream: the file.
        report: records remarks on the file; its `lines` counts words.
        vocabulary: the words to read; other words are skipped.

    Raises:
        DataError: the header is invalid, or the file ends within a word or its vector.
    """
    header = HEADER.fullmatch(stream.readline(MAX_WORD))
    if header is None or not 0 < int(header[2]) <= MAX_WIDTH:
        raise DataError(
            f"{report.name}: the first line must be the number of words and the number of features, at most "
            f"{MAX_WIDTH:,}"
        )
    report.width, report.unit = int(header[2]), "word"
    names = None if vocabulary is None else frozenset(word.encode(errors="replace") for word in vocabulary)
    entries = _binary_entries(stream, int(header[1]), report, names)
    while rows := list(itertools.islice(entries, BLOCK_SIZE)):
        numbers, words, vectors = ([*column] for column in zip(*rows, strict=True))
        yield Block(numbers, words, np.frombuffer(b"".join(vectors), "<f4").reshape(-1, report.width))


def _known_lines(
    lines: Iterable[tuple[int, bytes]], report: VectorsReport, vocabulary: Collection[str] | None
) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines, except those that do not begin with a word of the vocabulary."""
    words = None if vocabulary is None else (word.encode(errors="replace").split(None, 1)[:1] for word in vocabulary)
    beginnings = None if words is None else frozenset(itertools.chain.from_iterable(words))
    for report.lines, line in lines:
        if beginnings is not None and (first := line.split(None, 1)[:1]) and first[0] not in beginnings:
            report.skipped += 1
        else:
            yield report.lines, line


def _parse_block(rows: Sequence[tuple[int, bytes]], width: int, report: VectorsReport) -> Block:
    parts = [line.split(None, 1) for _, line in rows]
    if all(len(part) == 2 for part in parts):
        vectors = _parse_numbers([part[1] for part in parts], width)
        if vectors is not None:
            return Block([number for number, _ in rows], [part[0] for part in parts], vectors)
    # at least one line needs to be dropped or has a word with spaces: parse line by line
    block = Block([], [], np.empty((len(rows), width), np.float32))
    for number, line in rows:
        match _parse_entry(line, width):
            case str(reason):
                report.drop(reason, number)
            case word, vector:
                block.vectors[len(block.words)] = vector
                block.numbers.append(number)
                block.words.append(word)
    return block._replace(vectors=block.vectors[: len(block.words)])


def _parse_numbers(texts: list[bytes], width: int) -> np.ndarray | None:
    """Parse texts of `width` numbers each into (N, width); return None if any text has anything else."""
    try:
        with np.errstate(over="ignore"):
            numbers = np.loadtxt([text.decode("ascii") for text in texts], np.float32, comments=None, ndmin=2)
    except ValueError:
        return None
    return numbers if numbers.shape == (len(texts), width) else None


def _parse_entry(line: bytes, width: int) -> Entry | str:
    """Parse a line into a word and its vector, or return the reason for dropping it."""
    fields = line.rsplit(None, width)
    if not fields:
        return EMPTY_LINE
    word = fields[0].strip()
    # the word is everything before the last `width` numbers, unless that ends in a number itself
    if len(fields) != width + 1 or not word or (len(word.split()) > 1 and DECIMAL.fullmatch(word.split()[-1])):
        return OTHER_WIDTH
    try:
        with np.errstate(over="ignore"):
            return word, np.array([float(text) for text in fields[1:]]).astype(np.float32)
    except ValueError:
        return NO_NUMBER


def _binary_entries(
    stream: IO[bytes], count: int, report: VectorsReport, names: Collection[bytes] | None
) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the number, word and vector of each entry, except for words that are not among the names."""
    size, buffer, begin = 4 * report.width, b"", 0
    while True:
        if len(buffer) - begin < MAX_WORD + size:
            buffer, begin = buffer[begin:] + stream.read(max(CHUNK, MAX_WORD + size)), 0
        is_end = not buffer[begin : begin + MAX_WORD].strip(b"\n")
        if report.lines == count or is_end:
            break
        end = buffer.find(b" ", begin, begin + MAX_WORD)
        vector = buffer[end + 1 : end + 1 + size]
        if end < 0 or len(vector) < size:
            raise DataError(
                f"{report.name} is cut off or damaged: it contains {report.lines:,} of {count:,} words and an "
                "incomplete one"
            )
        report.lines += 1
        word = buffer[begin:end].lstrip(b"\n")
        if names is None or word in names:
            yield report.lines, word, vector
        else:
            report.skipped += 1
        begin = end + 1 + size
    if report.lines != count:
        report.remarks.append(f"the first line says {count:,} words, but there are {report.lines:,}")
    elif not is_end:
        report.remarks.append(f"data after the {count:,} words that the first line says was not read")


def format_of(path: Path | str) -> str:
    """Return the format of word vectors given by a file's extension.

    Raises:
        ArgumentError: the extension is unknown.
    """
    ending = Path(str(path).removesuffix(GZIPPED)).suffix
    if ending not in ENDINGS:
        endings = ", ".join(f"{ending} ({name})" for ending, name in ENDINGS.items())
        raise ArgumentError(
            f"the name of a file of word vectors must end in {endings}, optionally followed by {GZIPPED}; got {path}"
        )
    return ENDINGS[ending]


def is_writable(word: str, form: str) -> bool:
    """Return whether a word written in a format can be read back unchanged.

    Raises:
        UnknownNameError: the format is unknown.
    """
    check_known("format of word vectors", form, tuple(ENDINGS.values()))
    spaces = SPACE.findall(word)
    if not spaces:
        return bool(word)
    # a number at the end of a word with spaces would be read as part of its vector
    is_whole = not (SPACE.match(word) or SPACE.match(word[-1]) or DECIMAL.fullmatch(word.split()[-1].encode()))
    return is_whole and form != "binary" and set(spaces) <= {" ", "\t"}


def format_entry(word: bytes, vector: np.ndarray, form: str) -> bytes:
    """Return the bytes of a file entry; in text, each number has the fewest digits that restore its float32 value."""
    if form == "binary":
        return b"%b %b\n" % (word, vector.astype("<f4").tobytes())
    return word + b" " + " ".join(vector.astype(str)).encode("ascii") + b"\n"
