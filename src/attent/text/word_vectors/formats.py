"""Formats of word vectors, parsed and written: text (GloVe, word2vec, fastText) and word2vec's binary format.

Text: a word and its numbers in each line, separated by spaces or tabs; a word may contain spaces, as some of GloVe's
do. word2vec and fastText write a first line with the number of words and of features, GloVe does not.

Binary: the same first line; then each word, a space, and its features as little-endian float32, perhaps followed by a
line feed.
"""

from __future__ import annotations

import gzip
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from attent.errors import ArgumentError, DataError, check_known
from attent.text.readers import EMPTY_LINE, limited_lines
from attent.text.report import VectorsReport
from attent.text.word_vectors.vectors import WordVectors

# Reasons for which a report drops an entry.
OTHER_WIDTH, NO_NUMBER = "not as many numbers as the others", "something else where a number belongs"

# longer digit strings are no counts
HEADER = re.compile(rb"\s*(\d{1,18})[ \t]+(\d{1,9})\s*")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Lines from which the width is inferred.
SAMPLE_LINES = 100
# Entries in a block.
BLOCK_SIZE = 512
DECIMAL = re.compile(rb"[-+]?(\d*\.\d+(e[-+]?\d+)?|\d+e[-+]?\d+|nan|inf)", re.IGNORECASE)
# Bytes of a binary file that are read at a time.
CHUNK = 2**20
# Bytes of a word in a binary file.
MAX_WORD = 4096
# Numbers of a vector in a binary file.
MAX_WIDTH = 2**20

Entry = tuple[bytes, np.ndarray]
GZIPPED = ".gz"
# White space that ends a field; other kinds are part of a word.
SPACE = re.compile(r"[ \t\n\v\f\r]")
# White space that a word may contain where fields are counted from the right.
INNER_SPACE = " \t"
# The format of a file's name, without .gz.
ENDINGS = {".txt": "glove", ".vec": "word2vec", ".bin": "binary"}


class Block(NamedTuple):
    """Consecutive entries of a file.

    Args:
        numbers: of their lines, or of the entries where there are no lines, from 1.
        words: as the file writes them.
        vectors: (N, D), float32.
    """

    numbers: list[int]
    words: list[bytes]
    vectors: np.ndarray


class TextShape(NamedTuple):
    """Layout of a text file, inferred from its first lines.

    Args:
        width: numbers of each vector.
        header: the numbers of words and of features in the first line, if it has them.
    """

    width: int
    header: tuple[int, int] | None


def infer_shape(lines: Sequence[bytes]) -> TextShape | None:
    """Infer the layout of a file that begins with these lines, without a byte order mark.

    None if no line is a word and its vector. The width is that of most lines, or that of the header if any line has as
    many numbers.
    """
    header = _parse_header(lines)
    entries = lines if header is None else lines[1:]
    widths = [width for width, _ in Counter(len(line.split()) - 1 for line in entries).most_common() if width > 0]
    if header is not None and header[1] in widths:
        widths.insert(0, header[1])
    width = next((width for width in widths if has_entry(entries, width)), None)
    return None if width is None else TextShape(width, header)


def has_entry(lines: Iterable[bytes], width: int) -> bool:
    """Return whether any of these lines is a word and so many numbers."""
    return any(isinstance(_parse_entry(line, width), tuple) for line in lines)


def text_blocks(stream: IO[bytes], report: VectorsReport, vocabulary: Collection[str] | None = None) -> Iterator[Block]:
    """Parse a text file; lines that are no entry are dropped and reported.

    Args:
        stream: the file.
        report: records dropped lines.
        vocabulary: skip lines of other words unparsed.

    Raises:
        DataError: none of the first lines is a word and its vector.
    """
    stream_lines = limited_lines(stream, report.name)
    sample = list(itertools.islice(stream_lines, SAMPLE_LINES))
    if not sample:
        raise DataError(f"{report.name}: empty")
    sample[0] = sample[0].removeprefix(BYTE_ORDER_MARK)
    shape = infer_shape(sample)
    if shape is None:
        raise DataError(f"{report.name}: none of the first {len(sample)} lines is a word and its vector")
    report.width = shape.width
    lines = enumerate(itertools.chain(sample, stream_lines), start=1)
    if shape.header is not None:
        report.lines, _ = next(lines)
    for rows in _batch_lines(lines, report, vocabulary):
        yield _parse_block(rows, shape.width, report)
    if shape.header is not None:
        count, width = shape.header
        if (actual := report.lines - 1) != count:
            report.remarks.append(f"the first line says {count:,} words, and {actual:,} lines follow")
        if width != shape.width:
            report.remarks.append(f"the first line says {width} numbers a word, and lines have {shape.width}")


def binary_blocks(
    stream: IO[bytes], report: VectorsReport, vocabulary: Collection[str] | None = None
) -> Iterator[Block]:
    """Parse a binary file.

    Args:
        stream: the file.
        report: records remarks on the file; its `lines` counts words.
        vocabulary: skip other words.

    Raises:
        DataError: the header is invalid, or the file ends within a word or its vector.
    """
    header = HEADER.fullmatch(stream.readline(MAX_WORD))
    if header is None or int(header[2]) == 0:
        raise DataError(f"{report.name}: the first line must be the number of words and of their features")
    if int(header[2]) > MAX_WIDTH:
        raise DataError(
            f"{report.name}: the first line says {int(header[2]):,} numbers a word, more than the {MAX_WIDTH:,} that "
            "are read"
        )
    report.width, report.unit = int(header[2]), "word"
    names = None if vocabulary is None else frozenset(word.encode(errors="replace") for word in vocabulary)
    entries: list[tuple[int, bytes, bytes]] = []
    for word, vector in _binary_entries(stream, int(header[1]), report):
        if names is not None and word not in names:
            report.skipped += 1
            continue
        entries.append((report.lines, word, vector))
        if len(entries) == BLOCK_SIZE:
            yield _binary_block(entries, report.width)
            entries = []
    yield _binary_block(entries, report.width)


def _parse_header(lines: Sequence[bytes]) -> tuple[int, int] | None:
    """Return the counts in the first line.

    None if it is an entry: a word of digits and, as in the second line, one number.
    """
    match = HEADER.fullmatch(lines[0]) if lines else None
    if match is None:
        return None
    count, width = map(int, match.groups())
    return None if len(lines) > 1 and width != 1 and len(lines[1].split()) == 2 else (count, width)


def _batch_lines(
    lines: Iterable[tuple[int, bytes]], report: VectorsReport, vocabulary: Collection[str] | None
) -> Iterator[list[tuple[int, bytes]]]:
    """Group numbered lines into blocks, without those that begin with no word of the vocabulary."""
    beginnings = (
        None
        if vocabulary is None
        else frozenset(first for word in vocabulary for first in word.encode(errors="replace").split(None, 1)[:1])
    )
    rows: list[tuple[int, bytes]] = []
    for number, line in lines:
        report.lines = number
        if beginnings is not None and (first := line.split(None, 1)[:1]) and first[0] not in beginnings:
            report.skipped += 1
            continue
        rows.append((number, line))
        if len(rows) == BLOCK_SIZE:
            yield rows
            rows = []
    if rows:
        yield rows


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
    """Parse texts of `width` numbers each into (N, width); None if any has something else."""
    try:
        with np.errstate(over="ignore"):
            numbers = np.loadtxt([text.decode("ascii") for text in texts], np.float32, comments=None, ndmin=2)
    except ValueError:
        return None
    return numbers if numbers.shape == (len(texts), width) else None


def _parse_entry(line: bytes, width: int) -> Entry | str:
    """Parse a line into its word and vector, or return the reason to drop it."""
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


def _binary_entries(stream: IO[bytes], count: int, report: VectorsReport) -> Iterator[tuple[bytes, bytes]]:
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
                f"{report.name} is cut off or damaged: it holds {report.lines:,} of {count:,} words, and another that "
                "is not whole"
            )
        report.lines += 1
        yield buffer[begin:end].lstrip(b"\n"), vector
        begin = end + 1 + size
    if report.lines != count:
        report.remarks.append(f"the first line says {count:,} words, and there are {report.lines:,}")
    elif not is_end:
        report.remarks.append(f"more follows behind the {count:,} words that the first line says, and was not read")


def _binary_block(entries: list[tuple[int, bytes, bytes]], width: int) -> Block:
    numbers, words, vectors = ([*column] for column in zip(*entries, strict=True)) if entries else ([], [], [])
    return Block(numbers, words, np.frombuffer(b"".join(vectors), "<f4").reshape(-1, width).astype(np.float32))


class VectorFormat(NamedTuple):
    """Layout of a file of word vectors.

    Args:
        has_header: whether the first line is the number of words and of features.
        entry: turns a word and its vector into bytes.
        allows_spaces: whether a word may contain spaces.
    """

    has_header: bool
    entry: Callable[[bytes, np.ndarray], bytes]
    allows_spaces: bool


def _as_text(word: bytes, vector: np.ndarray) -> bytes:
    # the shortest numbers that give back the same float32
    return word + b" " + " ".join(vector.astype(str)).encode("ascii") + b"\n"


FORMATS = {
    "glove": VectorFormat(has_header=False, entry=_as_text, allows_spaces=True),
    "word2vec": VectorFormat(has_header=True, entry=_as_text, allows_spaces=True),
    "binary": VectorFormat(
        has_header=True,
        entry=lambda word, vector: b"%b %b\n" % (word, vector.astype("<f4").tobytes()),
        allows_spaces=False,
    ),
}


def format_of(path: Path | str) -> str:
    """Return the format that a file's name ends in.

    Raises:
        ArgumentError: it ends in none.
    """
    ending = Path(str(path).removesuffix(GZIPPED)).suffix
    if ending not in ENDINGS:
        endings = ", ".join(f"{ending} ({name})" for ending, name in ENDINGS.items())
        raise ArgumentError(f"a file of word vectors is named {endings}, perhaps followed by {GZIPPED}; got {path}")
    return ENDINGS[ending]


def is_writable(word: str, form: str) -> bool:
    """Return whether a format can hold a word so that it is read back.

    Raises:
        UnknownNameError: there is no such format.
    """
    check_known("format of word vectors", form, FORMATS)
    spaces = SPACE.findall(word)
    if not word or SPACE.match(word) or SPACE.match(word[-1]):
        return False
    if not spaces:
        return True
    # a number at the end of a word with spaces would be read as part of its vector
    return (
        FORMATS[form].allows_spaces
        and set(spaces) <= set(INNER_SPACE)
        and not DECIMAL.fullmatch(word.split()[-1].encode())
    )


def write(path: Path | str, vectors: WordVectors, form: str | None = None, *, gzipped: bool | None = None) -> None:
    """Write word vectors, in float32.

    Args:
        path: the file.
        vectors: the words and their vectors.
        form: glove (a word and its numbers in each line), word2vec (the same below a header, as fastText's .vec) or
            binary (word2vec's); unless given, the file's name decides: .txt, .vec or .bin.
        gzipped: whether to compress the file; unless given, if its name ends in .gz.

    Raises:
        ArgumentError: the name ends in no format, or the format cannot hold a word.
        UnknownNameError: there is no such format.
        DataError: the file cannot be written.
    """
    form = format_of(path) if form is None else form
    gzipped = str(path).endswith(GZIPPED) if gzipped is None else gzipped
    for word in vectors.words:
        if not is_writable(word, form):
            raise ArgumentError(f"the format {form} cannot hold the word {word!r}")
    try:
        with gzip.open(path, "wb") if gzipped else Path(path).open("wb") as file:
            file.writelines(_entries(vectors, FORMATS[form]))
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from error


def _entries(vectors: WordVectors, form: VectorFormat) -> Iterator[bytes]:
    if form.has_header:
        yield f"{len(vectors)} {vectors.width}\n".encode("ascii")
    for word, vector in zip(vectors.words, vectors.vectors.detach().float().cpu().numpy(), strict=True):
        yield form.entry(word.encode(), vector)
