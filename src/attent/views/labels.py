"""Legible labels of known width, in any script."""

import re
import unicodedata
from collections.abc import Iterable

SPACE, OTHER_SPACE, INVISIBLE = "␣", "⍽", "⌁"
# The base on which a lone combining mark is drawn.
BASE = "◌"
LEFT_TO_RIGHT = "\u200e"
JOINER = "\u200d"
# After a character, requests its emoji form, which takes two columns.
EMOJI_SELECTOR = "\ufe0f"
# Drawn inside the preceding character: vowels and final consonants of decomposed Hangul, and the colors of emoji.
JOINING = re.compile("[\u1160-\u11ff\ud7b0-\ud7ff\U0001f3fb-\U0001f3ff]")


def visible(label: str) -> str:
    """Make every character of a label visible.

    Spaces and characters without a glyph are replaced by stand-ins, and a lone combining mark gets a base.
    """
    text = "".join(_stand_in(character) or character for character in label)
    return BASE + text if text and unicodedata.category(text[0]).startswith("M") else text


def legend(labels: Iterable[str]) -> str:
    """Return a legend of the stand-ins in labels, such as `␣ space · ⍽ narrow no-break space`; empty without any."""
    names: dict[str, dict[str, None]] = {}
    for character in "".join(labels):
        stand_in = _stand_in(character)
        if stand_in is not None:
            names.setdefault(stand_in, {})[unicodedata.name(character, f"U+{ord(character):04X}").lower()] = None
    return " · ".join(f"{stand_in} {', '.join(meanings)}" for stand_in, meanings in names.items())


def clusters(text: str) -> list[str]:
    """Split a text into characters, each with the marks that combine with it."""
    pieces: list[str] = []
    for character in text:
        if pieces and (unicodedata.category(character)[0] == "M" or pieces[-1].endswith(JOINER) or character == JOINER):
            pieces[-1] += character
        else:
            pieces.append(character)
    return pieces


def width(text: str) -> int:
    """Return the number of terminal columns of a text: two for each wide character (UAX 11), none for a mark."""
    return sum(_cluster_width(cluster) for cluster in clusters(text))


def cut(text: str, columns: int) -> str:
    """Shorten a text to a number of columns, ending in an ellipsis if it was cut."""
    if width(text) <= columns:
        return text
    start = ""
    for cluster in clusters(text):
        if width(start + cluster) >= columns:
            break
        start += cluster
    return start + "…"


def pad(text: str, columns: int, *, left: bool = False) -> str:
    """Pad a text with spaces to a number of columns, aligned to the right or to the left.

    Right-to-left text is enclosed in left-to-right marks, so that terminals that reorder lines keep the columns in
    place.
    """
    fill = " " * (columns - width(text))
    text = f"{LEFT_TO_RIGHT}{text}{LEFT_TO_RIGHT}" if has_right_to_left(text) else text
    return text + fill if left else fill + text


def has_right_to_left(text: str) -> bool:
    """Return whether any character is written from right to left."""
    return any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in text)


def _cluster_width(cluster: str) -> int:
    base = cluster[0]
    if unicodedata.category(base) in ("Mn", "Mc", "Me", "Cc", "Cf", "Zl", "Zp") or JOINING.match(base):
        return 0
    return 2 if unicodedata.east_asian_width(base) in "WF" or EMOJI_SELECTOR in cluster else 1


def _stand_in(character: str) -> str | None:
    category = unicodedata.category(character)
    if character == " ":
        return SPACE
    if category == "Zs":
        return OTHER_SPACE
    return INVISIBLE if category in ("Cc", "Cf", "Zl", "Zp") and character != JOINER else None
