"""Documents: the lines to translate of a file, and the file with their translations.

A format is a file of this folder. A document is read in memory alone: no name that stands in it is opened, and nothing
is unpacked to the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attent.bounded import bytes_of, open_regular
from attent.documents.html import parse_html
from attent.documents.markdown import parse_markdown
from attent.documents.pipeline import Document, Refuse, translate_documents
from attent.documents.subtitles import parse_subtitles
from attent.documents.text import TextDocument, parse_text
from attent.errors import ArgumentError, DataError, check_known, needs

if TYPE_CHECKING:
    from attent.documents.translation import Search
    from attent.search.settings import SearchSettings
    from attent.tasks.translation.translator import Translator

EXTRA = "documents"
# Bytes of a file; as many as an archive may unpack to.
MAX_FILE = 2**27


def _read_word(content: bytes) -> Document[bytes]:
    with needs("documents of word processors need lxml", EXTRA):
        from attent.documents.word import read_word
    return read_word(content)


def _read_open_document(content: bytes) -> Document[bytes]:
    with needs("documents of word processors need lxml", EXTRA):
        from attent.documents.open_document import read_open_document
    return read_open_document(content)


FORMATS: dict[str, Callable[[bytes], Document[bytes]]] = {
    ".txt": partial(TextDocument, parse=parse_text),
    ".html": partial(TextDocument, parse=parse_html),
    ".md": partial(TextDocument, parse=parse_markdown),
    ".srt": partial(TextDocument, parse=parse_subtitles),
    ".docx": _read_word,
    ".odt": _read_open_document,
}


def read_file(path: Path | str) -> bytes:
    """Read the content of a file that is a document, of at most 128 MiB.

    Raises:
        DataError: it is larger, no regular file, or cannot be read.
    """
    try:
        with open_regular(path) as file:
            return bytes_of(file, MAX_FILE)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def read_document(content: bytes, ending: str) -> Document[bytes]:
    """Read a document.

    Args:
        content: of the file.
        ending: of its name, such as .docx.

    Raises:
        AttentError: a library is missing.
        DataError: it cannot be read, or is made to take too much.
        UnknownNameError: no such files are read.
    """
    check_known("document", ending, FORMATS)
    return FORMATS[ending](content)


def translate(
    document: str | Path | bytes,
    translator: Translator,
    settings: SearchSettings | None = None,
    *,
    ending: str | None = None,
    language: str | None = None,
    search: Search | None = None,
    refuse: Refuse | None = None,
) -> bytes:
    """Return the translation of a document, in its own format.

    Formats and links come back around the words that attention aligns theirs with. A sentence that is longer than the
    model reads, or than 500 characters, is cut between words.

    Args:
        document: the path of a file, or its content.
        translator: with attention to the source, such as `attent.load` returns.
        settings: of the search; greedy unless given.
        ending: of the file's name, such as .docx; that of the path unless given.
        language: the code by whose rules lines are cut into sentences; that of the run unless given. Whole lines are
            translated where neither is known.
        search: translates texts; the translator's own, by the settings, unless given.
        refuse: called with 0, a sentence that the translator refuses, and the reason; the sentence stays as it is.

    Raises:
        ArgumentError: the ending is not known, or the model has no attention to the source.
        AttentError: a library is missing.
        DataError: the document cannot be read, or is made to take too much.
    """
    from attent.documents.translation import by_run, language_of
    from attent.search.settings import GREEDY

    if isinstance(document, bytes):
        if ending is None:
            raise ArgumentError("the content of a document comes with the ending of its name: ending='.docx'")
        content = document
    else:
        path = Path(document)
        ending = ending or path.suffix.lower()
        check_known("document", ending, FORMATS)
        content = read_file(path)
    function = by_run(translator, settings or GREEDY, search=search)
    return translate_documents([read_document(content, ending)], language or language_of(translator), function, refuse)[
        0
    ]
