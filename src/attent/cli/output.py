"""Output of commands: results to standard output, everything else to standard error."""

import io
import os
import sys

from attent import system
from attent.errors import printable


def say(line: str) -> None:
    """Write a message that is not part of the result to standard error."""
    print(printable(line), file=sys.stderr, flush=True)


def write(result: object, *, flush: bool = False) -> None:
    """Print lines of a result, with control characters escaped."""
    print(printable(str(result)), flush=flush)


def one_line(text: object) -> str:
    """Return a message with line breaks and runs of spaces collapsed into single spaces."""
    return " ".join(str(text).split())


def speak_utf8() -> None:
    """Make standard output and error use UTF-8, whatever the locale, and escape characters that it cannot encode.

    On Windows, lines end as elsewhere, and consoles are told to interpret escape sequences.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    system.interpret_escapes()


def use_color() -> bool:
    """Return whether standard output is a terminal that supports color (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def report_installation(as_markdown: bool = False) -> int:
    """Print the state of the installation, or a report of it for an issue.

    Returns:
        The exit code: 0, or 2 if something is broken.
    """
    from attent.installation import examine

    findings = examine()
    write(findings.report() if as_markdown else "\n".join(findings.lines))
    for problem in findings.problems:
        say(f"broken: {problem}")
    return 2 if findings.problems else 0
