"""What goes where: results to standard output, everything else to standard error."""

from __future__ import annotations

import io
import os
import sys

from attent.printable import printable


def say(line: str) -> None:
    """A line for the person who waits, which is no result."""
    print(printable(line), file=sys.stderr, flush=True)


def write(result: object, *, flush: bool = False) -> None:
    """Lines of a result that may hold texts of a run."""
    print(printable(str(result)), flush=flush)


def one_line(text: object) -> str:
    """A message without the line breaks and runs of spaces that it may have."""
    return " ".join(str(text).split())


def speak_utf8() -> None:
    """Write UTF-8 whatever the machine's language: the texts and the blocks of a map need it; names that are none are escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def colours() -> bool:
    """Whether standard output is a terminal that is to be written to in colour (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
