"""Pairs from files: lines side by side in one file (TSV, JSON lines) or in two, plain, gzipped or from standard input."""

from __future__ import annotations

import itertools
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from attent.data import unpacking
from attent.data.text import Pair
from attent.errors import ArgumentError, DataError

STANDARD_INPUT = "-"
# Line numbers that a report names for each reason.
FIRST = 3
BEYOND = "\uffff"

# What is done with a line, as a report says it.
EMPTY_LINE, EMPTY_SOURCE, EMPTY_TARGET = "empty line", "empty source", "empty target"
NO_TAB, MANY_TABS = "no tab between source and target", "more than one tab"
NO_JSON, NO_TEXTS = "not JSON", 'not an object with the texts "source" and "target"'
OVER_LONG, SHARED = "longer than the maximum length", "also in validation"
RARE = "with an emoji or another character beyond U+FFFF"


@dataclass
class LineTally:
    """How many lines met with something, and the numbers of the first of them."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, line: int) -> None:
        """Count one more line, numbered from 1."""
        self.count += 1
        if len(self.first) < FIRST:
            self.first.append(line)

    def location(self, unit: str = "line") -> str:
        """`line 7`, or `lines 7, 9, 12, …`."""
        return f"{unit}{'s' * (self.count > 1)} {', '.join(map(str, self.first))}{', …' * (self.count > len(self.first))}"


@dataclass
class ReadReport:
    """What was read, and what was done with each line that is not like the others.

    Args:
        name: the file or the files.
        lines: lines read.
        dropped: by reason, the lines that were left out.
        noted: by what is particular about them, lines that were kept all the same.
    """

    name: str
    lines: int = 0
    dropped: dict[str, LineTally] = field(default_factory=dict)
    noted: dict[str, LineTally] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        """Lines that were not dropped."""
        return self.lines - sum(tally.count for tally in self.dropped.values())

    def drop(self, reason: str, line: int) -> None:
        """Say that a line is left out."""
        self.dropped.setdefault(reason, LineTally()).add(line)

    def note(self, what: str, line: int) -> None:
        """Say that a line is kept although there is something about it."""
        self.noted.setdefault(what, LineTally()).add(line)

    def summary(self) -> list[str]:
        """The report for a person, line by line."""
        return [
            f"{self.name}: {self.lines:,} lines read, {self.kept:,} kept",
            *(f"  {tally.count:,} dropped: {reason} ({tally.location()})" for reason, tally in self.dropped.items()),
            *(f"  {tally.count:,} kept as written: {what} ({tally.location()})" for what, tally in self.noted.items()),
        ]


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of UTF-8 text. Only a line feed ends one, with or without a carriage return before it; a byte order mark is dropped.

    Args:
        path: a file, gzipped if its name ends in .gz; `-` is standard input.

    Raises:
        DataError: the file cannot be read or unpacks to too much, or a line is not UTF-8 or too long.
    """
    with _opened(path) as stream:
        for number, line in enumerate(unpacking.lines(stream, _named(path)), start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise DataError(f"{_named(path)}, line {number}: not UTF-8 ({error.reason})") from error


def read_pairs(path: str | Path, report: ReadReport) -> Iterator[tuple[int, Pair]]:
    """The pairs of one file, with the numbers of their lines.

    A `.tsv` has source, tab and target in each line; a `.jsonl` has an object with the texts "source" and "target".
    Standard input is JSON lines if it begins with a brace, else TSV. Lines that are no pair are dropped and reported.

    Args:
        path: the file, its ending perhaps followed by .gz; `-` is standard input.
        report: takes up what was done with the lines.

    Raises:
        ArgumentError: the name ends otherwise.
        DataError: the file cannot be read, is empty, or has a line that is not UTF-8.
    """
    texts = read_lines(path)
    if str(path) == STANDARD_INPUT:
        first = next(texts, None)
        texts = itertools.chain([] if first is None else [first], texts)
        split = _json if (first or "").lstrip().startswith("{") else _tabs
    else:
        split = _splitter(path)
    return _kept(path, (split(text) for text in texts), report)


def read_parallel(source: str | Path, target: str | Path, report: ReadReport) -> Iterator[tuple[int, Pair]]:
    """The pairs of two files, the same line of both being one pair, with the numbers of their lines.

    Args:
        source: the file of sources.
        target: the file of targets.
        report: takes up what was done with the lines.

    Raises:
        DataError: a file cannot be read or is empty, has a line that is not UTF-8, or their numbers of lines differ.
    """
    return _kept(f"{_named(source)} and {_named(target)}", _side_by_side(source, target), report)


def _splitter(path: str | Path) -> Callable[[str], Pair | str]:
    match Path(str(path).removesuffix(".gz")).suffix:
        case ".tsv":
            return _tabs
        case ".jsonl":
            return _json
        case _:
            raise ArgumentError(f"a file of pairs is named .tsv or .jsonl (and perhaps .gz), got {path}")


def _side_by_side(source: str | Path, target: str | Path) -> Iterator[Pair]:
    left, right = read_lines(source), read_lines(target)
    for count in itertools.count():
        texts = next(left, None), next(right, None)
        match texts:
            case (str(), str()):
                yield Pair(*texts)
            case (None, None):
                return
            case _:
                counts = [count + (text is not None) + sum(1 for _ in rest) for text, rest in zip(texts, (left, right), strict=True)]
                counted = f"{_named(source)} has {counts[0]:,} and {_named(target)} has {counts[1]:,}"
                raise DataError(f"source and target must have as many lines as each other: {counted}")


def _kept(path: str | Path, read: Iterator[Pair | str], report: ReadReport) -> Iterator[tuple[int, Pair]]:
    number = 0
    for number, pair in enumerate(read, start=1):
        report.lines = number
        if isinstance(pair, Pair):
            pair = _lacking(pair) or pair
        if isinstance(pair, str):
            report.drop(pair, number)
            continue
        if max(pair.source) > BEYOND or max(pair.target) > BEYOND:
            report.note(RARE, number)
        yield number, pair
    if not number:
        raise DataError(f"{_named(path)}: empty")


def _lacking(pair: Pair) -> str | None:
    source, target = pair.source.strip(), pair.target.strip()
    if source and target:
        return None
    return EMPTY_TARGET if source else EMPTY_SOURCE if target else EMPTY_LINE


def _tabs(line: str) -> Pair | str:
    match line.split("\t"):
        case [source, target]:
            return Pair(source, target)
        case [text]:
            return NO_TAB if text.strip() else EMPTY_LINE
        case _:
            return MANY_TABS


def _json(line: str) -> Pair | str:
    if not line.strip():
        return EMPTY_LINE
    try:
        content = json.loads(line)
        # half a surrogate pair, which JSON can write, is no text
        line.encode() if "\\u" not in line else json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return NO_JSON
    match content:
        case {"source": str(source), "target": str(target)}:
            return Pair(source, target)
        case _:
            return NO_TEXTS


def _named(path: str | Path) -> str:
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


@contextmanager
def _opened(path: str | Path) -> Iterator[IO[bytes]]:
    if str(path) == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        with unpacking.open_gzip(path) if str(path).endswith(".gz") else Path(path).open("rb") as stream:
            yield stream
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
