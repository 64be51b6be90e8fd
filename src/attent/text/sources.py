"""Text input of commands and scripts: standard input, a file, or the text itself."""

import io
import re
import sys
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

from attent.errors import ArgumentError, DataError, reraise
from attent.text import readers
from attent.text.readers import TextPair, display_name, read_lines, split_pair

# A single word with an extension of text files.
FILE_NAME = re.compile(r"\S+\.(txt|tsv|csv|jsonl?|gz|src|docx|odt|srt|html|[a-z]{2})", re.IGNORECASE)


def open_source(source: str) -> BinaryIO:
    """Open standard input for "-", the file of that name if it exists, else the text itself.

    A file whose name ends in .gz is unpacked.

    Raises:
        ArgumentError: the source is a folder, looks like the name of a missing file, or is not UTF-8.
    """
    if source == "-":
        return sys.stdin.buffer
    try:
        # an empty text does not name the working directory
        if source and Path(source).is_dir():
            raise ArgumentError(f"{source} is a folder, neither a file nor text")
        # includes pipes
        if Path(source).exists():
            return readers.open_gzip(source) if source.endswith(".gz") else Path(source).open("rb")
        if FILE_NAME.fullmatch(source):
            raise ArgumentError(
                f"there is no file {source}; pass text that looks like a file name through standard input"
            )
    except ArgumentError:
        raise
    except (OSError, ValueError):
        pass  # too long for a file name, or with a character that is not allowed in one
    return io.BytesIO(check_utf8(source).encode())


def check_utf8(text: str, name: str = "the text") -> str:
    """Return a text unchanged if it is valid UTF-8.

    Args:
        text: an argument of a command.
        name: the name of the argument for the message.

    Raises:
        ArgumentError: the bytes of the argument were not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{name} is not UTF-8: {text[:60]!r}") from error
    return text


def check_file(name: str | Path) -> None:
    """Check that a name refers to a file, a pipe or standard input.

    Raises:
        ArgumentError: it does not.
    """
    if str(name) != "-" and (not Path(name).exists() or Path(name).is_dir()):
        raise ArgumentError(f"{str(name) or repr(name)} is not a file")


def decode_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of UTF-8 text, which end with a line feed, optionally preceded by a carriage return.

    Raises:
        DataError: a line is not UTF-8, or the file cannot be unpacked.
    """
    with reraise(DataError, f"{display_name(name)} cannot be read", EOFError, OSError, zlib.error):
        yield from readers.decode_lines(stream, display_name(name))


def decode_whole(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the whole of a UTF-8 text as a single item.

    Raises:
        DataError: the text is not UTF-8.
    """
    with reraise(DataError, f"{display_name(name)} is not UTF-8", UnicodeDecodeError):
        yield stream.read().decode("utf-8-sig")


def source_lines(source: str) -> list[str]:
    """Return the lines of standard input for "-", of a file, or of the text itself.

    Raises:
        ArgumentError: as for `open_source`.
        DataError: as for `decode_lines`.
    """
    with open_source(source) as stream:
        return [*decode_lines(stream, source)]


def read_text_pairs(source: str, target: str | None = None) -> Iterator[TextPair]:
    """Read pairs from one file, with a tab between source and target, or from two files, line by line.

    Args:
        source: a file, or "-" for standard input.
        target: the file of the translations; None if they are in the first file.

    Raises:
        ArgumentError: a file does not exist.
        DataError: a file cannot be read, a line does not have exactly one tab, or one file ends before the other.
    """
    check_file(source)
    if target is not None:
        check_file(target)
        return _zip_files(source, target)
    return (
        split_pair(line, f"{display_name(source)}, line {number}")
        for number, line in enumerate(read_lines(source), start=1)
    )


def _zip_files(source: str, target: str) -> Iterator[TextPair]:
    for number, (left, right) in enumerate(zip_longest(read_lines(source), read_lines(target)), start=1):
        if left is None or right is None:
            shorter, longer = (source, target) if left is None else (target, source)
            raise DataError(f"{display_name(shorter)} ends before line {number} of {display_name(longer)}")
        yield left, right
