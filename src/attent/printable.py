"""Text of somebody else's, as a terminal may be given it."""

from __future__ import annotations

import re

# all of C0 but tab and line feed, delete, and C1
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    r"""Write control characters as JSON does, `\u001b`, so that no terminal obeys them; tabs and line feeds stay."""
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
