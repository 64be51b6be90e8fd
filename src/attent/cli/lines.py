"""Where lines come from: a text, a file, or standard input."""

from __future__ import annotations

import io
import re
import sys
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeVar

from attent.data.readers import limited_lines, open_gzip
from attent.errors import ArgumentError, DataError

Item = TypeVar("Item")
# A single word that ends as files of text do.
FILE_NAME = re.compile(r"\S+\.(txt|tsv|csv|jsonl?|gz|src|[a-z]{2})", re.IGNORECASE)


def opened(source: str) -> BinaryIO:
    """Standard input for "-", the file of that name if there is one (unpacked if it ends in .gz), else the text itself.

    Raises:
        ArgumentError: it is a folder, looks like the name of a file that is not there, or is not UTF-8.
    """
    if source == "-":
        return sys.stdin.buffer
    try:
        # an empty text is no name of the working directory
        if source and Path(source).is_dir():
            raise ArgumentError(f"{source} is a folder, neither a file nor a text")
        # a pipe too
        if Path(source).exists():
            return open_gzip(source) if source.endswith(".gz") else Path(source).open("rb")
        if FILE_NAME.fullmatch(source):
            raise ArgumentError(f"there is no file {source}; a text that looks like a file's name goes through standard input")
    except ArgumentError:
        raise
    except (OSError, ValueError):
        pass  # too long for a name, or with a character that no name may have
    return io.BytesIO(as_utf8(source).encode())


def as_utf8(text: str, name: str = "the text") -> str:
    """The same text.

    Args:
        text: an argument of a command.
        name: what a message calls it.

    Raises:
        ArgumentError: its bytes were not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{name} is not UTF-8: {text[:60]!r}") from error
    return text


def must_be_file(name: str | Path) -> None:
    """Check that a name is that of a file, a pipe, or of standard input.

    Raises:
        ArgumentError: it is not.
    """
    if str(name) != "-" and (not Path(name).exists() or Path(name).is_dir()):
        raise ArgumentError(f"{str(name) or repr(name)} is no file")


def lines_of(stream: BinaryIO, name: str) -> Iterator[str]:
    """The lines of UTF-8 text; only a line feed ends one, with or without a carriage return before it.

    Raises:
        DataError: a line is not UTF-8, or the file cannot be unpacked.
    """
    for number, line in enumerate(_unpacked(stream, name), start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise DataError(f"{where(name)}, line {number}: not UTF-8 ({error.reason})") from error


def _unpacked(stream: BinaryIO, name: str) -> Iterator[bytes]:
    try:
        yield from limited_lines(stream, where(name))
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{where(name)} cannot be read: {error}") from error


def where(name: str) -> str:
    """What a message calls the place that lines come from."""
    return "standard input" if name == "-" else name


def some_at_a_time(read: Iterator[Item], most: int) -> Iterator[list[Item]]:
    """What is read, so many together; where an error ends it, those before it come first, to be answered.

    Args:
        read: one after another; no more is read than what is asked for.
        most: how many come together, ≥ 1; fewer at the end.

    Raises:
        DataError: that of what is read, behind all that stands before it.
    """
    broken = None
    while broken is None:
        some: list[Item] = []
        try:
            some.extend(islice(read, most))
        except DataError as error:
            broken = error
        if not some:
            break
        yield some
    if broken is not None:
        raise broken
