"""Alignments as the alignment tools write them: `0-0 1-2`, and in gold files `3?4` or `3p4` for links that are merely possible."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from attent.data.gold import Gold, Link
from attent.data.readers import read_lines
from attent.errors import DataError

LINK = re.compile(r"(\d{1,18})([-?p])(\d{1,18})", re.ASCII)
SURE = "-"


def pharaoh(found: Collection[Link], possible: Collection[Link] = ()) -> str:
    """Links as `source-target`, those that are merely possible as `source?target`, from 0, in the order of the source."""
    signs = dict.fromkeys(possible, "?") | dict.fromkeys(found, SURE)
    return " ".join(f"{source}{signs[source, target]}{target}" for source, target in sorted(signs))


def parse(line: str, place: str = "", *, first: int = 0) -> Gold:
    """The links of one line; a blank line has none.

    Args:
        line: links parted by spaces.
        place: where the line stands, to be named in errors.
        first: the number of the first word in it, 0 or 1.

    Raises:
        DataError: something in it is no link.
    """
    sure, possible = set[Link](), set[Link]()
    at = f"{place}: " if place else ""
    for text in line.split():
        found = LINK.fullmatch(text)
        if found is None:
            raise DataError(f"{at}a link is written 0-2, or 0?2 or 0p2 where it is merely possible, got {text!r}")
        link = int(found[1]) - first, int(found[3]) - first
        if min(link) < 0:
            raise DataError(f"{at}words are counted from {first}, got {text!r}")
        (sure if found[2] == SURE else possible).add(link)
    return Gold.of(sure, possible)


def read_gold(path: str | Path, *, first: int = 0) -> Iterator[Gold]:
    """The gold links of each line of a file.

    Args:
        path: the file, gzipped if its name ends in .gz; `-` is standard input.
        first: the number of the first word in it, 0 or 1.

    Raises:
        DataError: the file cannot be read, or a line holds something that is no link.
    """
    name = "standard input" if str(path) == "-" else path
    for number, line in enumerate(read_lines(path), start=1):
        yield parse(line, f"{name}, line {number}", first=first)


def check(gold: Gold, source: int, target: int, place: str) -> None:
    """Check that links are of words that there are.

    Args:
        gold: the links of one pair.
        source: how many words its source has.
        target: how many words its target has.
        place: where the links stand, to be named in errors.

    Raises:
        DataError: a link is of a word that is not there.
    """
    for link in sorted(gold.possible):
        if link[0] >= source or link[1] >= target:
            raise DataError(f"{place}: {link[0]}-{link[1]}, counted from 0, links words of {source} source and {target} target words")
