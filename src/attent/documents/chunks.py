"""Translators that process documents in chunks: texts with markup, or a file as a whole.

Texts are numbered from 0. For each chunk, a translator reports whether every sentence was translated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from attent.documents import parse_subtitles, read_document, read_file
from attent.documents.html import MarkedText, parse_html
from attent.documents.markdown import parse_markdown
from attent.documents.pipeline import Document, Search, by_run, language_of, translate_documents
from attent.errors import DataError
from attent.tasks.translation.translator import Translator

Content = TypeVar("Content")
# The index of a document, a sentence that is left untranslated, and the reason.
Refusals = list[tuple[int, str, str]]
MARKUP = {"html": parse_html, "markdown": parse_markdown, "subtitles": parse_subtitles}
# Maximum characters of a sentence shown in a message.
NAMED = 60


class MarkupTranslator:
    """Translates texts with markup, each as a separate document; a text with unreadable markup is left as it is.

    Args:
        translator: a translator with attention to the source.
        search: translates sentences.
        say: reports sentences that the run refuses.
        markup: "html", "markdown" or "subtitles".
        each_line: True if each text is a line; messages then include line numbers.

    Attributes:
        is_empty: True if there was nothing to translate.
        end: the text that follows each translation.
    """

    warning = None

    def __init__(
        self, translator: Translator, search: Search, say: Callable[[str], None], markup: str, *, each_line: bool
    ) -> None:
        self.translator, self.search, self.say = translator, search, say
        self.parse, self.each_line, self.is_empty = MARKUP[markup], each_line, True
        self.end = "\n" if each_line else ""

    def translate(self, chunk: Sequence[tuple[int, str]]) -> tuple[list[str], bool]:
        """Return the translations of numbered texts, and whether all sentences were translated."""
        refusals: Refusals = []
        marked = [self._parsed(index, text, refusals) for index, (_, text) in enumerate(chunk)]
        translations = _translate(marked, self.translator, self.search, refusals)
        for index, sentence, reason in refusals:
            line = f"line {chunk[index][0] + 1}: " if self.each_line else ""
            self.say(f"{line}{sentence[:NAMED]!r}: {reason}")
        self.is_empty &= not any(text for _, text in chunk)
        return translations, not refusals

    def _parsed(self, index: int, text: str, refusals: Refusals) -> MarkedText:
        try:
            return self.parse(text)
        except DataError as error:
            refusals.append((index, text, str(error)))
            return MarkedText([text])


class FileTranslator:
    """Translates a document file as a whole.

    Args:
        translator: a translator with attention to the source.
        search: translates sentences.
        say: reports sentences that the run refuses.
        source: the name of the file.
        ending: the ending of its format, such as ".docx".

    Attributes:
        digest: the SHA-256 of the file.
        is_empty: True if there is nothing to translate.

    Raises:
        AttentError: a library is missing.
        DataError: the document cannot be read.
    """

    end, warning = "", None

    def __init__(
        self, translator: Translator, search: Search, say: Callable[[str], None], source: str, ending: str
    ) -> None:
        self.translator, self.search, self.say = translator, search, say
        content = read_file(source)
        try:
            self.document = read_document(content, ending)
        except DataError as error:
            raise DataError(f"{source}: {error}") from error
        self.digest, self.is_empty = hashlib.sha256(content).hexdigest(), not self.document.lines

    def translate(self, chunk: Sequence[tuple[int, str]]) -> tuple[list[bytes], bool]:
        """Return the translated file, and whether all sentences were translated; the chunk is the file's digest."""
        refusals: Refusals = []
        translations = _translate([self.document], self.translator, self.search, refusals)
        for _, sentence, reason in refusals:
            self.say(f"{sentence[:NAMED]!r}: {reason}")
        return translations, not refusals


def _translate(
    documents: Sequence[Document[Content]], translator: Translator, search: Search, refusals: Refusals
) -> list[Content]:
    return translate_documents(
        documents,
        language_of(translator),
        by_run(translator, search),
        lambda *refusal: refusals.append(refusal),
    )
