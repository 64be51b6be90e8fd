"""Documents with markup through a translator: a whole file, or a document a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from attent.cli.inputs import chunks, decode_lines
from attent.cli.output import say
from attent.cli.results import Results
from attent.errors import DataError
from attent.text.readers import display_name

if TYPE_CHECKING:
    from attent.documents.translate import Search
    from attent.tasks.translation.translator import Translator

# Documents that are lines, translated at once.
LINES = 256
# Characters of a sentence that is named in a message.
NAMED = 60


def translate_documents(
    translator: Translator,
    stream: BinaryIO,
    source: str,
    kind: str,
    results: Results,
    search: Search,
    *,
    each_line: bool,
) -> tuple[bool, bool]:
    """Translate documents; sentences that the run refuses stay as they were, and are told of.

    Args:
        translator: has attention to the source.
        stream: the document, or a document a line.
        source: the name of the stream.
        kind: of the markup.
        results: takes the translated documents.
        search: translates sentences.
        each_line: whether each line is a document.

    Returns:
        Whether there was anything to translate, and whether all of it was.

    Raises:
        DataError: the text is not UTF-8.
    """
    from attent.documents.translate import translate_markup

    language = None if translator.config is None else translator.config.source_language
    has_any, is_complete = False, results.is_complete
    documents = decode_lines(stream, source) if each_line else _whole(stream, source)
    for chunk in chunks(results.remaining(documents), 1 if stream.isatty() else LINES):
        refusals: list[tuple[int, str, str]] = []
        texts = [text for _, text in chunk]
        translations = translate_markup(
            translator,
            texts,
            kind,
            language=language,
            search=search,
            refuse=lambda *refusal, to=refusals: to.append(refusal),
        )
        for translation in translations:
            results.write(translation, end="\n" if each_line else "")
        for index, sentence, reason in refusals:
            say(f"{f'line {chunk[index][0] + 1}: ' if each_line else ''}{sentence[:NAMED]!r}: {reason}")
        has_any, is_complete = has_any or any(texts), is_complete and not refusals
        results.commit(texts, is_complete=is_complete)
    return has_any, is_complete


def _whole(stream: BinaryIO, source: str) -> Iterator[str]:
    try:
        yield stream.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{display_name(source)} is not UTF-8: {error}") from error
