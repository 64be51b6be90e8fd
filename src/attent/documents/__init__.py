"""Documents: the lines to translate of a file, and the file with their translations.

A format is a file of this folder, or markup's. A document is read in memory alone: no name that stands in it is opened,
and nothing is unpacked to the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from attent.documents.html import parse_html
from attent.documents.inline import AlignedText, Element
from attent.documents.markdown import parse_markdown
from attent.documents.open_document import read_open_document
from attent.documents.plain_text import parse_text
from attent.documents.subtitles import parse_subtitles
from attent.documents.text import TextDocument
from attent.documents.word import read_word
from attent.errors import check_known


class Document(Protocol):
    """A file as lines to translate and everything around them."""

    @property
    def lines(self) -> Sequence[Element]:
        """The lines to translate, in order."""
        ...

    def render(self, translations: Iterable[AlignedText]) -> bytes:
        """Return the file with the translation of each line in its place.

        Call it once, since some documents are changed by it.
        """
        ...


FORMATS: dict[str, Callable[[bytes], Document]] = {
    ".txt": partial(TextDocument, parse=parse_text),
    ".html": partial(TextDocument, parse=parse_html),
    ".md": partial(TextDocument, parse=parse_markdown),
    ".srt": partial(TextDocument, parse=parse_subtitles),
    ".docx": read_word,
    ".odt": read_open_document,
}


def read_document(content: bytes, ending: str) -> Document:
    """Read a document.

    Args:
        content: of the file.
        ending: of its name, such as .docx.

    Raises:
        DataError: it cannot be read, or is made to take too much.
        UnknownNameError: no such files are read.
    """
    check_known("document", ending, FORMATS)
    return FORMATS[ending](content)
