"""Subtitles (SubRip, .srt): each cue is a line to translate; numbers, times and blank lines stay as they are.

Line ends within a cue are put back between the words that they stood between; before a dash, where somebody else
speaks, they end a line.
"""

from __future__ import annotations

import re

from attent.documents.html import MarkedText, Token, build_lines
from attent.documents.inline import has_words

TIME = r"\d{1,4}:\d{1,2}:\d{1,2}[,.]\d{1,4}"
TIMES = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}")
# A change of speaker; a tag of HTML; a position or an override such as {\an8}; the end of a line.
SPEAKER = re.compile(r"((?:\r\n|\n|\r)(?=[ \t]*[-\N{EN DASH}\N{EM DASH}]))")
TAG = re.compile(r"(</?(?:b|i|u|s|font|span)(?=[\s>])[^<>\n]{0,200}>|\{\\[^{}\n]{0,200}\}|\r\n|\n|\r)", re.IGNORECASE)


def parse_subtitles(text: str) -> MarkedText:
    """Cut subtitles into lines to translate, and the rest.

    Raises:
        DataError: a cue has too many tags.
    """
    marked, cue, is_cue = MarkedText(escape=str), list[str](), False
    for line in text.splitlines(keepends=True):
        if TIMES.match(line):
            # the number of this cue, where no blank line ends the one before
            number = cue.pop() if cue and cue[-1].strip().isdecimal() else ""
            _add_cue(marked, cue)
            marked.parts.append(number + line)
            cue, is_cue = [], True
        elif is_cue and line.strip():
            cue.append(line)
        else:
            _add_cue(marked, cue)
            marked.parts.append(line)
            cue, is_cue = [], False
    _add_cue(marked, cue)
    return marked


def _add_cue(marked: MarkedText, lines: list[str]) -> None:
    """Add the text of a cue."""
    text = "".join(lines)
    body = text.rstrip("\r\n")
    for piece in SPEAKER.split(body):
        tokens = [Token(_kind(part), part, _name(part)) for part in TAG.split(piece) if part]
        if any(token.kind == "text" and has_words(token.raw) for token in tokens):
            marked.parts += build_lines(tokens, str, str)
        else:
            marked.parts.append(piece)
    marked.parts.append(text[len(body) :])


def _kind(part: str) -> str:
    if not TAG.fullmatch(part):
        return "text"
    return "point" if part[0] != "<" else "close" if part.startswith("</") else "open"


def _name(part: str) -> str:
    return part.strip("</>").partition(" ")[0].lower() if part.startswith("<") else ""
