"""Document translation: split lines into sentences, translate these by a function, and render the document.

The function is the search of a run (`by_run`), the server's queue, or a test's dictionary. PyTorch is only imported to
translate with a run, since other processes only read and write documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from attent.documents.inline import AlignedText, Element, untranslated
from attent.errors import AttentError, DataError
from attent.text.sentences import SplitText, split_sentences
from attent.text.units import Span

if TYPE_CHECKING:
    from attent.search.search import SourceText, Translation
    from attent.tasks.translation.translator import Translator

Content = TypeVar("Content", covariant=True)
# Maximum characters of a sentence; a longer one is cut between words.
MAX_SENTENCE = 500
# The number of sentences that a run translates together, whose attention is in memory at the same time.
SENTENCES = 512
SPACE = re.compile(r"\s+")


class Document(Protocol[Content]):
    """A file or a text with markup, split into lines to translate and everything around them."""

    @property
    def lines(self) -> Sequence[Element]:
        """The lines to translate, in order."""
        ...

    def render(self, translations: Iterable[AlignedText]) -> Content:
        """Return the document with each line replaced by its translation.

        Call this only once, since it changes some documents.
        """
        ...


class DocumentSentence(NamedTuple):
    """A sentence of a document.

    Args:
        text: the sentence.
        has_tags: True if its line has tags, so that its words must be linked to those of the translation.
    """

    text: str
    has_tags: bool


class Refusal(NamedTuple):
    """The reason why a sentence has no translation."""

    reason: str


# Translates sentences, in order.
Translate = Callable[[Sequence[DocumentSentence]], Iterable[AlignedText | Refusal]]
# Returns the translations of each text, the best first.
Search = Callable[[Sequence["SourceText"]], list[list["Translation"]]]
# Receives the index of a document, a sentence that is left untranslated, and the reason.
Refuse = Callable[[int, str, str], None]


def translate_documents(
    documents: Sequence[Document[Content]], language: str | None, translate: Translate, refuse: Refuse | None = None
) -> list[Content]:
    """Translate documents, with the sentences of all of them in one sequence.

    Args:
        documents: documents that have not been rendered.
        language: the code of the language whose rules split lines into sentences; None to translate whole lines.
        translate: translates the sentences.
        refuse: called for each sentence without a translation, which is left as it is.
    """
    splits = [[*split_lines(document, language)] for document in documents]
    sentences = [
        sentence
        for document, lines in zip(documents, splits, strict=True)
        for sentence in sentences_of(document, lines)
    ]
    results = zip(sentences, translate(sentences), strict=True)

    def translations(number: int) -> Iterator[AlignedText]:
        for sentence, result in results:
            if isinstance(result, Refusal):
                if refuse is not None:
                    refuse(number, sentence.text, result.reason)
                result = untranslated(sentence.text)
            yield result

    return [
        render(document, lines, translations(number))
        for number, (document, lines) in enumerate(zip(documents, splits, strict=True))
    ]


def split_lines(document: Document[object], language: str | None) -> Iterator[SplitText]:
    """Yield the sentences of each line; for `language`, see `translate_documents`."""
    return (split_sentences(line.text, language or "en", whole=language is None) for line in document.lines)


def sentences_of(document: Document[object], splits: Iterable[SplitText]) -> Iterator[DocumentSentence]:
    """Yield the sentences of a document, given those of its lines."""
    for line, split in zip(document.lines, splits, strict=True):
        has_tags = bool(line.elements)
        yield from (DocumentSentence(text, has_tags) for text in split.sentences)


def render(document: Document[Content], splits: Iterable[SplitText], translations: Iterator[AlignedText]) -> Content:
    """Return a document with each sentence replaced by its translation.

    Args:
        document: a document that has not been rendered.
        splits: the sentences of its lines.
        translations: the translations of the sentences, consumed as they are needed.
    """
    return document.render(join_aligned(split, [next(translations) for _ in split.sentences]) for split in splits)


def join_aligned(split: SplitText, translations: Sequence[AlignedText]) -> AlignedText:
    """Join the translations of a text's sentences, with links between the whole texts."""
    links = list[tuple[Span, Span]]()
    before = [len(split.between[0])] * 2
    for sentence, translation, between in zip(split.sentences, translations, split.between[1:], strict=True):
        links += [(_shifted(source, before[0]), _shifted(target, before[1])) for source, target in translation.links]
        before = [before[0] + len(sentence) + len(between), before[1] + len(translation.text) + len(between)]
    return AlignedText(split.join([translation.text for translation in translations]), links)


def _shifted(span: Span, offset: int) -> Span:
    return Span(span.begin + offset, span.end + offset)


def cut_sentence(sentence: str, check: Callable[[str], object]) -> SplitText:
    """Cut an overlong sentence between words, into pieces and the white space between them.

    An overlong word, such as a sentence in a language without spaces, is cut too.

    Args:
        sentence: the sentence.
        check: raises an AttentError for a text that cannot be translated, such as one that is too long.

    Raises:
        AttentError: the first error of `check`, if it refuses even a single character.
    """
    pieces, waiting, first = list[tuple[str, str]](), [(sentence, "")], None
    while waiting:
        text, after = waiting.pop()
        gaps = [match.span() for match in SPACE.finditer(text)]
        if not gaps or len(text) <= MAX_SENTENCE:
            try:
                check(text)
            except AttentError as error:
                first = first or error
                if len(text) < 2:
                    raise first from None
                gaps = gaps or [(len(text) // 2, len(text) // 2)]
            else:
                pieces.append((text, after))
                continue
        begin, end = min(gaps, key=lambda gap: abs(gap[0] - len(text) // 2))
        waiting += [(text[end:], after), (text[:begin], text[begin:end])]
    return SplitText(("", *(after for _, after in pieces)), tuple(text for text, _ in pieces))


def by_run(translator: Translator, search: Search | None = None) -> Translate:
    """Return a function that translates sentences of documents with a run.

    Args:
        translator: a translator with attention to the source.
        search: translates texts; by default the translator's greedy search.

    Raises (the function):
        ArgumentError: the model has no attention to the source.
    """

    def cut(sentence: DocumentSentence, sources: dict[str, SourceText]) -> SplitText | Refusal:
        def read(text: str) -> None:
            if text not in sources:
                sources[text] = translator.read(text)
            if (refusal := sources[text].refusal) is not None:
                raise DataError(refusal)

        try:
            return cut_sentence(sentence.text, read)
        except DataError as error:
            return Refusal(str(error))

    def translate(sentences: Sequence[DocumentSentence]) -> Iterator[AlignedText | Refusal]:
        for begin in range(0, len(sentences), SENTENCES):
            batch = sentences[begin : begin + SENTENCES]
            sources: dict[str, SourceText] = {}
            cuts = [cut(sentence, sources) for sentence in batch]
            pieces = [
                DocumentSentence(text, sentence.has_tags)
                for sentence, split in zip(batch, cuts, strict=True)
                if isinstance(split, SplitText)
                for text in split.sentences
            ]
            aligned = _translated(translator, pieces, sources, search or translator.search)
            for sentence, split in zip(batch, cuts, strict=True):
                if isinstance(split, Refusal):
                    yield split
                else:
                    yield join_aligned(
                        split, [aligned[DocumentSentence(text, sentence.has_tags)] for text in split.sentences]
                    )

    return translate


def language_of(translator: Translator) -> str | None:
    """Return the code of a run's source language, whose rules split lines into sentences; None if it is unknown."""
    return None if translator.config is None else translator.config.source_language


def _translated(
    translator: Translator,
    sentences: Sequence[DocumentSentence],
    sources: Mapping[str, SourceText],
    search: Search,
) -> dict[DocumentSentence, AlignedText]:
    """Return the translation of each sentence; sentences that are equal to the model are translated once."""
    from attent.tasks.translation.alignment import Alignment

    read = {sentence: sources[sentence.text] for sentence in sentences}
    distinct = {source.text: source for source in read.values()}
    translations = dict(zip(distinct, (n_best[0] for n_best in search([*distinct.values()])), strict=True))
    items = {sentence: replace(translations[source.text], source=source) for sentence, source in read.items()}
    marked = [sentence for sentence in items if sentence.has_tags]
    alignments = Alignment.of(translator, [items[sentence] for sentence in marked], "characters")
    spans = {sentence: alignment.spans for sentence, alignment in zip(marked, alignments, strict=True)}
    return {sentence: AlignedText(item.text, spans.get(sentence, ())) for sentence, item in items.items()}
