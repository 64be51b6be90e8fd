"""Documents: the lines to translate of a file, and the file with their translations.

Documents are read in memory only: no file that they name is opened, and nothing is unpacked to the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attent.bounded import bytes_of, open_regular
from attent.documents.html import parse_html
from attent.documents.markdown import parse_markdown
from attent.documents.pipeline import Document, Refuse, Search, by_run, language_of, translate_documents
from attent.documents.text import TextDocument, parse_subtitles, parse_text
from attent.errors import ArgumentError, DataError, check_known, needs

if TYPE_CHECKING:
    from attent.search.settings import SearchSettings
    from attent.tasks.translation.translator import Translator

EXTRA = "documents"
# Bytes of a file; as many as an archive may unpack to.
MAX_FILE = 2**27


def _read_word_processor(content: bytes, ending: str) -> Document[bytes]:
    with needs("documents of word processors need lxml", EXTRA):
        from attent.documents.word_processors import read_open_document, read_word
    return read_word(content) if ending == ".docx" else read_open_document(content)


FORMATS: dict[str, Callable[[bytes], Document[bytes]]] = {
    ".txt": partial(TextDocument, parse=parse_text),
    ".html": partial(TextDocument, parse=parse_html),
    ".md": partial(TextDocument, parse=parse_markdown),
    ".srt": partial(TextDocument, parse=parse_subtitles),
    ".docx": partial(_read_word_processor, ending=".docx"),
    ".odt": partial(_read_word_processor, ending=".odt"),
}


def read_file(path: Path | str) -> bytes:
    """Read the content of a document file of at most 128 MiB.

    Raises:
        DataError: it is larger, is not a regular file, or cannot be read.
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
        DataError: it cannot be read, or exceeds a limit.
        UnknownNameError: the ending is not known.
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

    Formatting and links are put around the words that attention aligns with the original ones. A sentence longer than
    500 characters, or than the model can read, is cut between words.

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
        DataError: the document cannot be read, or exceeds a limit.
    """
    if isinstance(document, bytes):
        if ending is None:
            raise ArgumentError("the content of a document comes with the ending of its name: ending='.docx'")
        content = document
    else:
        path = Path(document)
        ending = ending or path.suffix.lower()
        check_known("document", ending, FORMATS)
        content = read_file(path)
    if search is None and settings is not None:
        search = partial(translator.search, settings=settings)
    (translation,) = translate_documents(
        [read_document(content, ending)], language or language_of(translator), by_run(translator, search), refuse
    )
    return translation
