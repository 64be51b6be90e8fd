"""The Pharaoh format of alignments: `0-0 1-2`, with `3?4` or `3p4` for possible links in gold files."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from attent.errors import DataError
from attent.text.readers import read_lines
from attent.text.text import Gold, Link

LINK = re.compile(r"(\d{1,18})([-?p])(\d{1,18})", re.ASCII)
SURE = "-"


def pharaoh(links: Collection[Link], possible: Collection[Link] = ()) -> str:
    """Format links as `source-target` and possible ones as `source?target`, zero-based, in source order."""
    signs = dict.fromkeys(possible, "?") | dict.fromkeys(links, SURE)
    return " ".join(f"{source}{signs[source, target]}{target}" for source, target in sorted(signs))


def parse(line: str, location: str = "", *, first: int = 0) -> Gold:
    """Parse the links of one line; a blank line has none.

    Args:
        line: links separated by spaces.
        location: location of the line, for error messages.
        first: the number of the first word in it, 0 or 1.

    Raises:
        DataError: the line has a malformed link.
    """
    sure, possible = set[Link](), set[Link]()
    at = f"{location}: " if location else ""
    for text in line.split():
        match = LINK.fullmatch(text)
        if match is None:
            raise DataError(f"{at}a link must be written 0-2, or 0?2 or 0p2 if it is only possible, got {text!r}")
        link = int(match[1]) - first, int(match[3]) - first
        if min(link) < 0:
            raise DataError(f"{at}words are counted from {first}, got {text!r}")
        (sure if match[2] == SURE else possible).add(link)
    return Gold.of(sure, possible)


def read_gold(path: str | Path, *, first: int = 0) -> Iterator[Gold]:
    """Read the gold links of each line of a file.

    Args:
        path: the file, gzipped if its name ends in .gz; `-` is standard input.
        first: the number of the first word in it, 0 or 1.

    Raises:
        DataError: the file cannot be read, or a line has a malformed link.
    """
    name = "standard input" if str(path) == "-" else path
    for number, line in enumerate(read_lines(path), start=1):
        yield parse(line, f"{name}, line {number}", first=first)


def check(gold: Gold, source: int, target: int, location: str) -> None:
    """Check that links are between existing words.

    Args:
        gold: the links of one pair.
        source: number of words of its source.
        target: number of words of its target.
        location: location of the links, for error messages.

    Raises:
        DataError: a link refers to a word past the end.
    """
    for link in sorted(gold.possible):
        if link[0] >= source or link[1] >= target:
            raise DataError(
                f"{location}: {link[0]}-{link[1]}, counted from 0, links words of {source} source and {target} target "
                "words"
            )
