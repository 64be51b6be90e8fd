"""Labels that can be read and that take up a known width, whatever they are written in."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len

SPACE, OTHER_SPACE, INVISIBLE = "␣", "⍽", "⌁"
BASE = "◌"
LEFT_TO_RIGHT = "\u200e"


def visible(label: str) -> str:
    """A label in which everything can be seen: spaces and marks without a glyph have a stand-in, a lone combining mark a base."""
    shown = "".join(_stand_in(character) or character for character in label)
    return BASE + shown if shown and unicodedata.category(shown[0]).startswith("M") else shown


def legend(labels: Iterable[str]) -> str:
    """What the stand-ins in some labels stand for, such as `␣ space · ⍽ narrow no-break space`; empty where there is none."""
    found: dict[str, dict[str, None]] = {}
    for character in "".join(labels):
        stand_in = _stand_in(character)
        if stand_in is not None:
            found.setdefault(stand_in, {})[unicodedata.name(character, f"U+{ord(character):04X}").lower()] = None
    return " · ".join(f"{stand_in} {', '.join(names)}" for stand_in, names in found.items())


def clusters(text: str) -> list[str]:
    """The text in pieces that are written together: each character with the marks that combine with it."""
    found: list[str] = []
    for character in text:
        joined = bool(found) and (unicodedata.category(character)[0] == "M" or found[-1].endswith("\u200d") or character == "\u200d")
        if joined:
            found[-1] += character
        else:
            found.append(character)
    return found


def width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(cell_len(cluster) for cluster in clusters(text))


def cut(text: str, columns: int) -> str:
    """A text of at most so many columns; one that is longer ends in an ellipsis."""
    if width(text) <= columns:
        return text
    kept = ""
    for cluster in clusters(text):
        if width(kept + cluster) >= columns:
            break
        kept += cluster
    return kept + "…"


def padded(text: str, columns: int, *, left: bool = False) -> str:
    """A text filled up with spaces to so many columns; it stands to the right, or to the left.

    Text that runs from right to left is fenced in, so that a terminal which reorders lines leaves the columns in place.
    """
    fill = " " * (columns - width(text))
    text = f"{LEFT_TO_RIGHT}{text}{LEFT_TO_RIGHT}" if right_to_left(text) else text
    return text + fill if left else fill + text


def right_to_left(text: str) -> bool:
    """Whether any of it is written from right to left."""
    return any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in text)


def _stand_in(character: str) -> str | None:
    if character == " ":
        return SPACE
    match unicodedata.category(character):
        case "Zs":
            return OTHER_SPACE
        case "Cc" | "Cf" | "Zl" | "Zp" if character not in "\u200c\u200d":
            return INVISIBLE
        case _ if character == "\u200c":
            return INVISIBLE
        case _:
            return None
