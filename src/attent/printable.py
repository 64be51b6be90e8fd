"""Text from outside, made safe to print on a terminal, and short enough for a message."""

from __future__ import annotations

import re

# all of C0 but tab and line feed, delete, and C1
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

# Characters of a message at its beginning and at its end, where it is longer.
BEGIN, END = 240, 80


def printable(text: str) -> str:
    r"""Escape control characters as JSON does, `\u001b`, so that a terminal does not execute them.

    Tabs and line feeds stay.
    """
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shortened(message: str) -> str:
    """Leave out the middle of a message that is long because it repeats what somebody sent."""
    return message if len(message) <= BEGIN + END else f"{message[:BEGIN]} … {message[-END:]}"
