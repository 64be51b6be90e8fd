"""Documents through a translator: a file, markup as a whole, or a document a line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from attent.cli.inputs import decode_lines
from attent.cli.output import say
from attent.errors import DataError, refuse
from attent.runs.results import ResultFile, Results
from attent.text.readers import chunks, display_name

if TYPE_CHECKING:
    from attent.documents.html import MarkedText
    from attent.documents.pipeline import Document, Search
    from attent.tasks.translation.translator import Translator

# Files that are documents by the ending of their names, with their markup. A .txt is a file of lines.
ENDINGS = {".html": "html", ".md": "markdown", ".srt": "subtitles", ".docx": None, ".odt": None}
# Documents that are lines, translated at once.
LINES = 256
# Characters of a sentence that is named in a message.
NAMED = 60


def ending_of(source: str, out: Path | None) -> str:
    """Return the ending of a file that is a document; empty for anything else.

    Args:
        source: a text, or the name of a file.
        out: the file for the translation; None for standard output.

    Raises:
        ArgumentError: the translation of the document cannot go there.
    """
    ending = Path(source).suffix.lower()
    # a long text is no name
    if ending not in ENDINGS or len(source) > 4_096 or not Path(source).is_file():
        return ""
    needs_file = ENDINGS[ending] is None
    refuse(
        (out is None and needs_file, f"{source} is a document: --out FILE{ending} takes its translation"),
        (
            out is not None and out.suffix.lower() != ending,
            f"{source} is a document: its translation ends in {ending} too, got --out {out}",
        ),
    )
    return ending


class DocumentFile(NamedTuple):
    """A file that is a document.

    Args:
        document: as lines to translate.
        digest: SHA-256 of the file.
    """

    document: Document[bytes]
    digest: str


def read_file(source: str, ending: str) -> DocumentFile:
    """Read a file that is a document.

    Args:
        source: the name of the file.
        ending: of its format.

    Raises:
        AttentError: a library is missing.
        DataError: the document cannot be read.
    """
    from attent import documents

    content = documents.read_file(source)
    try:
        return DocumentFile(documents.read_document(content, ending), hashlib.sha256(content).hexdigest())
    except DataError as error:
        raise DataError(f"{source}: {error}") from error


def translate_file(
    translator: Translator, file: DocumentFile, results: ResultFile, search: Search
) -> tuple[bool, bool]:
    """Translate a file that is a document; it is done as a whole, or not at all.

    Args:
        translator: has attention to the source.
        file: the document.
        results: takes the translated document.
        search: translates sentences.

    Returns:
        Whether there was anything to translate, and whether all of it was.
    """
    from attent.documents.pipeline import by_run, language_of, translate_documents

    has_any, refusals = bool(file.document.lines), list[tuple[int, str, str]]()
    for _, digest in results.remaining(iter([file.digest])):
        (translation,) = translate_documents(
            [file.document],
            language_of(translator),
            by_run(translator, search),
            lambda *refusal: refusals.append(refusal),
        )
        results.write_bytes(translation)
        for _, sentence, reason in refusals:
            say(f"{sentence[:NAMED]!r}: {reason}")
        results.commit([digest], is_complete=not refusals)
    return has_any, results.is_complete and not refusals


def translate_markup(
    translator: Translator,
    stream: BinaryIO,
    source: str,
    markup: str,
    results: Results,
    search: Search,
    *,
    each_line: bool,
) -> tuple[bool, bool]:
    """Translate text with markup; sentences that the run refuses, and what cannot be read, stay as they are.

    Args:
        translator: has attention to the source.
        stream: the document, or a document a line.
        source: the name of the stream.
        markup: "html", "markdown" or "subtitles".
        results: takes the translated documents.
        search: translates sentences.
        each_line: whether each line is a document.

    Returns:
        Whether there was anything to translate, and whether all of it was.

    Raises:
        DataError: the text is not UTF-8.
    """
    from attent.documents.pipeline import by_run, language_of, translate_documents

    language = language_of(translator)
    has_any, is_complete = False, results.is_complete
    documents = decode_lines(stream, source) if each_line else _whole(stream, source)
    for chunk in chunks(results.remaining(documents), 1 if stream.isatty() else LINES):
        refusals: list[tuple[int, str, str]] = []
        texts = [text for _, text in chunk]
        marked = [_parsed(number, text, markup, refusals) for number, text in enumerate(texts)]
        translations = translate_documents(
            marked, language, by_run(translator, search), lambda *refusal, to=refusals: to.append(refusal)
        )
        for translation in translations:
            results.write(translation, end="\n" if each_line else "")
        for index, sentence, reason in refusals:
            say(f"{f'line {chunk[index][0] + 1}: ' if each_line else ''}{sentence[:NAMED]!r}: {reason}")
        has_any, is_complete = has_any or any(texts), is_complete and not refusals
        results.commit(texts, is_complete=is_complete)
    return has_any, is_complete


def _parsed(number: int, text: str, markup: str, refusals: list[tuple[int, str, str]]) -> MarkedText:
    """Return a text as lines to translate; one that cannot be read as a part that stays, with a refusal."""
    from attent.documents import parse_subtitles
    from attent.documents.html import MarkedText, parse_html
    from attent.documents.markdown import parse_markdown

    parse = {"html": parse_html, "markdown": parse_markdown, "subtitles": parse_subtitles}
    try:
        return parse[markup](text)
    except DataError as error:
        refusals.append((number, text, str(error)))
        return MarkedText([text])


def _whole(stream: BinaryIO, source: str) -> Iterator[str]:
    try:
        yield stream.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{display_name(source)} is not UTF-8: {error}") from error
