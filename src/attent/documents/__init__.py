"""Translation of documents: find the lines to translate in a file, and write the file with their translations.

Documents are only read in memory: no file that they refer to is opened, and nothing is unpacked to disk. In plain text,
each line is translated. In subtitles (SubRip, .srt), each cue is a line; numbers, times and blank lines are left
unchanged. Line breaks within a cue are put back between the same words; a line break before a dash, where the speaker
changes, ends the line.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from attent.bounded import bytes_of, open_regular
from attent.documents.html import MarkedText, Token, build_lines, parse_html
from attent.documents.inline import AlignedText, Element, check_size, has_words
from attent.documents.markdown import parse_markdown
from attent.documents.pipeline import Document, Refuse, Search, by_run, language_of, translate_documents
from attent.errors import ArgumentError, DataError, check_known, needs, refuse, reraise

if TYPE_CHECKING:
    from attent.search.settings import SearchSettings
    from attent.tasks.translation.translator import Translator

EXTRA = "documents"
# Maximum bytes of a file; an archive may unpack to the same size.
MAX_FILE = 2**27
# Maximum lines, tags, marks, table cells, entities and placeholders of a document, counted by one character of each.
# Each takes up to two kilobytes of memory.
MAX_PARTS = 125_000
PART = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]|[<{%@&*_`~\\[|]|://")
# Byte order marks.
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
TIME = r"\d{1,4}:\d{1,2}:\d{1,2}[,.]\d{1,4}"
TIMES = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}")
# A change of speaker; an HTML tag; a position or an override such as {\an8}; the end of a line.
SPEAKER = re.compile(r"((?:\r\n|\n|\r)(?=[ \t]*[-\N{EN DASH}\N{EM DASH}]))")
TAG = re.compile(r"(</?(?:b|i|u|s|font|span)(?=[\s>])[^<>\n]{0,200}>|\{\\[^{}\n]{0,200}\}|\r\n|\n|\r)", re.IGNORECASE)


class TextDocument:
    """A text file in UTF-8, or in UTF-16 with a byte order mark; it is written in the same encoding.

    Args:
        content: the bytes of the file.
        parse: splits its text into lines to translate and the rest.

    Raises:
        DataError: the file has another encoding, has too many lines or tags, or cannot be parsed.
    """

    def __init__(self, content: bytes, parse: Callable[[str], MarkedText]) -> None:
        self._mark = next((mark for mark in MARKS if content.startswith(mark)), b"")
        self._encoding = MARKS.get(self._mark, "utf-8")
        try:
            text = content[len(self._mark) :].decode(self._encoding)
        except UnicodeDecodeError as error:
            position = error.start + len(self._mark)
            raise DataError(f"the file is not {self._encoding.upper()}: {error.reason} at byte {position:,}") from error
        refuse(
            ("\0" in text, "the file is not text: it contains zero bytes"),
            (
                next(islice(PART.finditer(text), MAX_PARTS, None), None) is not None,
                f"a document may have at most {MAX_PARTS:,} lines, tags and other marks: split it into several",
            ),
            kind=DataError,
        )
        self._marked = parse(text)
        check_size(self._marked.lines)

    @property
    def lines(self) -> Sequence[Element]:
        """The lines to translate, in order."""
        return self._marked.lines

    def render(self, translations: Iterable[AlignedText]) -> bytes:
        """Return the bytes of the file with each line replaced by its translation."""
        return self._mark + self._marked.render(translations).encode(self._encoding, "replace")


def parse_text(text: str) -> MarkedText:
    """Split a text into lines to translate and the rest."""
    marked = MarkedText(escape=str)
    for line in text.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        marked.parts += [Element(children=[body]) if has_words(body) else body, line[len(body) :]]
    return marked


def parse_subtitles(text: str) -> MarkedText:
    """Split subtitles into lines to translate and the rest.

    Raises:
        DataError: a cue has too many tags.
    """
    marked, cue, is_cue = MarkedText(escape=str), list[str](), False
    for line in text.splitlines(keepends=True):
        if TIMES.match(line):
            # the number of this cue, if no blank line ends the previous one
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
    """Add the lines of a cue to a document, one line to translate for each speaker."""
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


def _read_word_processor(content: bytes, ending: str) -> Document[bytes]:
    with needs("word-processor documents need lxml", EXTRA):
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
    """Read the bytes of a document file of at most 128 MiB.

    Raises:
        DataError: the file is larger, is not a regular file, or cannot be read.
    """
    with (
        reraise(DataError, f"{path} cannot be read", OSError),
        reraise(DataError, path, DataError),
        open_regular(path) as file,
    ):
        return bytes_of(file, MAX_FILE)


def read_document(content: bytes, ending: str) -> Document[bytes]:
    """Read a document.

    Args:
        content: the bytes of the file.
        ending: the ending of its name, such as .docx.

    Raises:
        AttentError: a library is missing.
        DataError: the document cannot be read, or exceeds a limit.
        UnknownNameError: the ending is unknown.
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
    """Return the translation of a document, in the same format.

    Formatting and links are put around the words that attention aligns with the original ones. A sentence that is
    longer than 500 characters, or too long for the model, is cut between words.

    Args:
        document: the path of a file, or its content.
        translator: a translator with attention to the source, as returned by `attent.load`.
        settings: the settings of the search; greedy by default.
        ending: the ending of the file's name, such as .docx; by default that of the path.
        language: the code of the language whose rules split lines into sentences; by default that of the run. If
            neither is known, whole lines are translated.
        search: translates texts; by default the translator's own search with these settings.
        refuse: called with 0, a sentence that the translator refuses, and the reason; the sentence is left
            untranslated.

    Raises:
        ArgumentError: the ending is unknown, or the model has no attention to the source.
        AttentError: a library is missing.
        DataError: the document cannot be read, or exceeds a limit.
    """
    if isinstance(document, bytes):
        if ending is None:
            raise ArgumentError("bytes need the ending of the document's name, such as ending='.docx'")
        content = document
    else:
        ending = ending or Path(document).suffix.lower()
        check_known("document", ending, FORMATS)
        content = read_file(document)
    try:
        read = read_document(content, ending)
    except DataError as error:
        raise error if isinstance(document, bytes) else DataError(f"{document}: {error}") from error
    if search is None and settings is not None:
        search = partial(translator.search, settings=settings)
    (translation,) = translate_documents(
        [read], language or language_of(translator), by_run(translator, search), refuse
    )
    return translation
