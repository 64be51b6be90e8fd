"""Readers of text files with lines, pairs or labeled texts: TSV, JSON lines or parallel files.

Files may be plain, gzipped or standard input. Every reader limits the unpacked size, so that a small compressed file
cannot fill the memory.
"""

import gzip
import io
import itertools
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from attent.errors import ArgumentError, DataError, reraise
from attent.text.text import Pair, ReadReport

STANDARD_INPUT = "-"
# The last character of Unicode's basic plane.
LAST_BASIC = "\uffff"

# Text and numbers unpack to a few times their packed size. Readers accept this multiple of the packed size, or
# MIN_UNPACKED bytes if that is more.
MAX_RATIO, MIN_UNPACKED = 100, 2**26
# Maximum bytes of a line. SentencePiece needs fifty times as much memory to split one, even if only to find that it is
# too long to train on.
MAX_LINE = 2**21
BUFFER = 2**18

# Reasons in reports for dropping or noting a line.
EMPTY_LINE, MANY_TABS = "empty line", "more than one tab"
NOT_JSON, NO_TEXTS = "not JSON", 'not an object with the texts "source" and "target"'
OVER_LONG = "longer than the maximum length"
RARE = "with an emoji or another character beyond U+FFFF"
REPEATED, CONTRADICTED = "the same text and label as before", "the text has other labels on other lines"
PAIR_COLUMNS, LABELLED_COLUMNS = ("source", "target"), ("text", "label")

# The texts of a line, or the reason for dropping it.
Fields = tuple[str, ...]
Parsed = Fields | str
Item = TypeVar("Item")
TextPair = tuple[str, str]


class LabelledText(NamedTuple):
    """A text and the name of its class."""

    text: str
    label: str


def display_name(path: str | Path) -> str:
    """Return the name of a file for messages; `-` is standard input."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def read_lines(path: str | Path) -> Iterator[str]:
    """Read the lines of UTF-8 text.

    Lines end with a line feed, optionally preceded by a carriage return; a byte order mark is dropped.

    Args:
        path: a file, gzipped if its name ends in .gz; `-` is standard input.

    Raises:
        DataError: the file cannot be read or its unpacked size is too large, or a line is not UTF-8 or too long.
    """
    with nullcontext(sys.stdin.buffer) if str(path) == STANDARD_INPUT else open_file(path) as stream:
        yield from decode_lines(stream, display_name(path))


def read_with_references(source: str | Path, target: str | Path) -> tuple[list[str], list[str]]:
    """Return the lines of a file and their references from another file.

    Raises:
        ArgumentError: the numbers of lines and references differ, or there are none.
        DataError: a file cannot be read.
    """
    sources, references = list(read_lines(source)), list(read_lines(target))
    if not sources or len(sources) != len(references):
        raise ArgumentError(
            f"each line needs one reference, got {len(sources)} lines and {len(references)} references ({source}, "
            f"{target})"
        )
    return sources, references


def decode_lines(stream: IO[bytes], name: str) -> Iterator[str]:
    """Read the lines of an open UTF-8 stream as `read_lines` does.

    Args:
        stream: the text.
        name: the name of the stream in errors.

    Raises:
        DataError: a line is not UTF-8 or too long; errors of the stream itself are not caught.
    """
    for number, line in enumerate(limited_lines(stream, name), start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise DataError(f"{name}, line {number}: not UTF-8 ({error.reason})") from error


def chunks(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Yield items in lists of a given size; the last list may be shorter.

    Args:
        items: the items, of which only those of the next list are read in advance.
        size: the number of items in a list, at least 1.

    Raises:
        DataError: the items raised it; all items before it have been yielded.
    """
    failure = None
    while failure is None:
        chunk: list[Item] = []
        try:
            chunk.extend(itertools.islice(items, size))
        except DataError as error:
            failure = error
        if not chunk:
            break
        yield chunk
    if failure is not None:
        raise failure


def split_pair(line: str, location: str) -> TextPair:
    """Split a line into source and target at its tab.

    Raises:
        DataError: the line does not have exactly one tab; the message names its location.
    """
    source, *targets = line.split("\t")
    if len(targets) != 1:
        raise DataError(f"{location}: must be source, tab, target, got {len(targets)} tabs")
    return source, targets[0]


def read_texts(path: str | Path, report: ReadReport) -> Iterator[tuple[int, str]]:
    """Read the non-blank lines of a file, with their line numbers.

    Args:
        path: see `read_lines`.
        report: records empty lines.

    Raises:
        DataError: as for `read_lines`, or the file is empty.
    """
    rows = ((line,) if line.strip() else EMPTY_LINE for line in read_lines(path))
    return ((number, text) for number, (text,) in _report_dropped(display_name(path), rows, report))


def pairs_ending(path: str | Path) -> str:
    """Return the extension of a file of pairs, .tsv or .jsonl, ignoring a final .gz; empty for standard input.

    Raises:
        ArgumentError: the name has another extension.
    """
    ending = Path(str(path).removesuffix(".gz")).suffix
    if str(path) != STANDARD_INPUT and ending not in (".tsv", ".jsonl"):
        raise ArgumentError(f"the name of a file of pairs must end in .tsv or .jsonl (optionally with .gz), got {path}")
    return ending


def read_pairs(path: str | Path, report: ReadReport) -> Iterator[tuple[int, Pair]]:
    """Read the pairs of one file, with their line numbers.

    Each line of a `.tsv` has source and target, separated by a tab; each line of a `.jsonl` has an object with the
    texts "source" and "target". Standard input is JSON lines if it begins with a brace, else TSV. Lines without a pair
    are dropped and reported.

    Args:
        path: the file, optionally with .gz after its extension; `-` is standard input.
        report: records dropped lines.

    Raises:
        ArgumentError: the name has another extension.
        DataError: the file cannot be read, is empty, or has a line that is not UTF-8.
    """
    lines, ending = read_lines(path), pairs_ending(path)
    if str(path) == STANDARD_INPUT:
        first = next(lines, None)
        lines = itertools.chain([] if first is None else [first], lines)
        ending = ".jsonl" if (first or "").lstrip().startswith("{") else ".tsv"
    parse = _parse_json if ending == ".jsonl" else partial(_parse_tsv, columns=PAIR_COLUMNS)
    return _pairs(display_name(path), (parse(line) for line in lines), report)


def read_parallel(source: str | Path, target: str | Path, report: ReadReport) -> Iterator[tuple[int, Pair]]:
    """Read pairs from two files, line by line, with their line numbers.

    Args:
        source: the file of sources.
        target: the file of targets.
        report: records dropped lines.

    Raises:
        DataError: a file cannot be read, is empty or has a line that is not UTF-8, or the files differ in length.
    """
    return _pairs(f"{display_name(source)} and {display_name(target)}", _parallel_lines(source, target), report)


def read_labelled(path: str, report: ReadReport) -> list[tuple[int, LabelledText]]:
    """Read labeled texts, with their line numbers; each line has a text and its label, separated by a tab.

    Spaces around a label are dropped. Texts that occur with different labels, repetitions of a text, and lines without
    text or label are dropped and reported.

    Args:
        path: the file, gzipped if its name ends in .gz; `-` is standard input.
        report: records dropped lines.

    Raises:
        DataError: the file cannot be read, is empty, has a line that is not UTF-8, or has no line with a text and a
            label.
    """
    rows = (_parse_tsv(line, LABELLED_COLUMNS) for line in read_lines(path))
    numbered = _report_dropped(display_name(path), rows, report, note_rare=False)
    examples = [(number, LabelledText(text, label.strip())) for number, (text, label) in numbered]
    labels: dict[str, set[str]] = {}
    for _, example in examples:
        labels.setdefault(example.text, set()).add(example.label)
    result, texts = [], set[str]()
    for number, example in examples:
        if len(labels[example.text]) > 1:
            report.drop(CONTRADICTED, number)
        elif example.text in texts:
            report.drop(REPEATED, number)
        else:
            texts.add(example.text)
            result.append((number, example))
    if not result:
        raise DataError(f"no line contains a text and a label; {report.one_line()}")
    return result


def max_unpacked(packed: int) -> int:
    """Return the maximum unpacked size, in bytes, of a file with this packed size."""
    return max(MAX_RATIO * packed, MIN_UNPACKED)


class LimitedReader(io.RawIOBase):
    """Reader of unpacked bytes up to a limit.

    Args:
        stream: the stream that unpacks the file; closed with this reader.
        packed: the size of the packed file in bytes.
        name: the name of the file in errors.
    """

    def __init__(self, stream: IO[bytes], packed: int, name: Path | str) -> None:
        self._stream, self._limit, self._name, self._count = stream, max_unpacked(packed), name, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Read some bytes; raise the stream's errors, or a DataError beyond the limit."""
        content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        self._count += len(content)
        if self._count > self._limit:
            raise DataError(
                f"{self._name} unpacks to more than {self._limit:,} bytes, too many for text or numbers in a file of "
                "its size"
            )
        return len(content)

    def close(self) -> None:
        """Close this reader and its stream."""
        self._stream.close()
        super().close()


def limit_unpacking(stream: IO[bytes], packed: int, name: Path | str) -> io.BufferedReader:
    """Limit the number of bytes that a stream unpacks; arguments as for `LimitedReader`."""
    return io.BufferedReader(LimitedReader(stream, packed, name), BUFFER)


def open_gzip(path: Path | str) -> io.BufferedReader:
    """Open a gzipped file for reading, with a limit on its unpacked size.

    Raises:
        OSError: the file cannot be opened; errors of reading as for `LimitedReader`.
    """
    # a pipe has no size
    return limit_unpacking(gzip.open(path), Path(path).stat().st_size or sys.maxsize, path)  # pyright: ignore[reportArgumentType]


def limited_lines(stream: IO[bytes], name: Path | str) -> Iterator[bytes]:
    """Read the lines of a stream, including their line feeds.

    Raises:
        DataError: a line is longer than 2 MiB.
    """
    for number in itertools.count(1):
        line = stream.readline(MAX_LINE + 1)
        if not line:
            return
        if len(line) > MAX_LINE:
            raise DataError(f"{name}, line {number}: has more than {MAX_LINE:,} bytes")
        yield line


def _parse_tsv(line: str, columns: tuple[str, str]) -> Parsed:
    match line.split("\t"):
        case [first, second]:
            return _non_empty(first, second, columns)
        case [text]:
            return f"no tab between {' and '.join(columns)}" if text.strip() else EMPTY_LINE
        case _:
            return MANY_TABS


def _parse_json(line: str) -> Parsed:
    if not line.strip():
        return EMPTY_LINE
    try:
        content = json.loads(line)
        # JSON can contain half a surrogate pair, which is not text
        line.encode() if "\\u" not in line else json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return NOT_JSON
    match content:
        case {"source": str(source), "target": str(target)}:
            return _non_empty(source, target, PAIR_COLUMNS)
        case _:
            return NO_TEXTS


def _parallel_lines(source: str | Path, target: str | Path) -> Iterator[Parsed]:
    files = read_lines(source), read_lines(target)
    for count in itertools.count():
        match texts := tuple(next(lines, None) for lines in files):
            case (str(left), str(right)):
                yield _non_empty(left, right, PAIR_COLUMNS)
            case (None, None):
                return
            case _:
                counts = [
                    count + (text is not None) + sum(1 for _ in lines) for text, lines in zip(texts, files, strict=True)
                ]
                raise DataError(
                    "source and target must have the same number of lines: "
                    f"{display_name(source)} has {counts[0]:,} and {display_name(target)} has {counts[1]:,}"
                )


def _non_empty(first: str, second: str, columns: tuple[str, str]) -> Parsed:
    has_first, has_second = bool(first.strip()), bool(second.strip())
    if has_first and has_second:
        return first, second
    return f"empty {columns[1]}" if has_first else f"empty {columns[0]}" if has_second else EMPTY_LINE


def _pairs(name: str, rows: Iterator[Parsed], report: ReadReport) -> Iterator[tuple[int, Pair]]:
    return ((number, Pair(source, target)) for number, (source, target) in _report_dropped(name, rows, report))


def _report_dropped(
    name: str, rows: Iterator[Parsed], report: ReadReport, *, note_rare: bool = True
) -> Iterator[tuple[int, Fields]]:
    """Number the lines; drop and report those without texts."""
    number = 0
    for number, fields in enumerate(rows, start=1):
        report.lines = number
        if isinstance(fields, str):
            report.drop(fields, number)
            continue
        if note_rare and max(map(max, fields)) > LAST_BASIC:
            report.note(RARE, number)
        yield number, fields
    if not number:
        raise DataError(f"{name}: empty")


@contextmanager
def open_file(path: str | Path) -> Iterator[Any]:
    """Open a file for reading, gzipped if its name ends in .gz.

    Raises:
        DataError: the file cannot be opened or read, or its unpacked size is too large.
    """
    with (
        reraise(DataError, f"{path} cannot be read", OSError, EOFError, zlib.error),
        open_gzip(path) if str(path).endswith(".gz") else io.BufferedReader(io.FileIO(path), BUFFER) as stream,
    ):
        yield stream
