"""Documents of text alone, with or without markup; of plain text each line is translated, and line ends stay."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from attent.documents.html import MarkedText
from attent.documents.inline import AlignedText, Element, check_size, has_words
from attent.errors import DataError

# Lines, tags, marks, cells of tables, entities and placeholders of a document, by a character of each. Each takes up to
# two kilobytes of memory.
MAX_PARTS = 125_000
PART = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]|[<{%@&*_`~\\[|]|://")
# The bytes that an encoding begins a file with.
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


class TextDocument:
    """A file of UTF-8, or of UTF-16 that says so in its first bytes; it is written in the same.

    Args:
        content: of the file.
        parse: cuts its text into lines to translate and the rest.

    Raises:
        DataError: it is in another encoding, has too many lines or tags, or cannot be parsed.
    """

    def __init__(self, content: bytes, parse: Callable[[str], MarkedText]) -> None:
        self._mark = next((mark for mark in MARKS if content.startswith(mark)), b"")
        self._encoding = MARKS.get(self._mark, "utf-8")
        try:
            text = content[len(self._mark) :].decode(self._encoding)
        except UnicodeDecodeError as error:
            position = error.start + len(self._mark)
            raise DataError(f"the file is not {self._encoding.upper()}: {error.reason} at byte {position:,}") from error
        if "\0" in text:
            raise DataError("the file is no text: it holds zero bytes")
        if next(islice(PART.finditer(text), MAX_PARTS, None), None) is not None:
            raise DataError(
                f"a document may have at most {MAX_PARTS:,} lines, tags and other marks: cut it into several"
            )
        self._marked = parse(text)
        check_size(self._marked.lines)

    @property
    def lines(self) -> Sequence[Element]:
        """The lines to translate, in order."""
        return self._marked.lines

    def render(self, translations: Iterable[AlignedText]) -> bytes:
        """Return the file with the translation of each line in its place."""
        return self._mark + self._marked.render(translations).encode(self._encoding, "replace")


def parse_text(text: str) -> MarkedText:
    """Cut a text into lines to translate, and the rest."""
    marked = MarkedText(escape=str)
    for line in text.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        marked.parts += [Element(children=[body]) if has_words(body) else body, line[len(body) :]]
    return marked
