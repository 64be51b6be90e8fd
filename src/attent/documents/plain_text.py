"""Plain text: lines to translate, and the ends of lines."""

from __future__ import annotations

from attent.documents.html import MarkedText
from attent.documents.inline import Element, has_words


def parse_text(text: str) -> MarkedText:
    """Cut a text into lines to translate, and the rest."""
    marked = MarkedText(escape=str)
    for line in text.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        marked.parts += [Element(children=[body]) if has_words(body) else body, line[len(body) :]]
    return marked
