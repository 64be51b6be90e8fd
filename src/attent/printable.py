"""Text from outside, made safe to print on a terminal."""

from __future__ import annotations

import re

# all of C0 but tab and line feed, delete, and C1
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    r"""Escape control characters as JSON does, `\u001b`, so that a terminal does not execute them; tabs and line feeds stay."""
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
