"""Documents with markup, translated by a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attent.alignment.forced_decoding import AttentionSelector
from attent.documents.aligned import join_aligned, untranslated
from attent.documents.html import MarkedText, parse_html
from attent.documents.inline import AlignedText, Element
from attent.documents.markdown import parse_markdown
from attent.documents.subtitles import parse_subtitles
from attent.errors import DataError, check_known
from attent.search.search import Translation
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.translation.links import translation_spans
from attent.tasks.translation.translator import Translator
from attent.text.sentences import split_sentences
from attent.text.tokenizer import respell_characters

# Translations of sentences, the best first.
Search = Callable[[Sequence[str]], list[list[Translation]]]
Refuse = Callable[[int, str, str], None]
PARSERS: dict[str, Callable[[str], MarkedText]] = {
    "html": parse_html,
    "markdown": parse_markdown,
    "subtitles": parse_subtitles,
}


def parse_markup(document: str, kind: str) -> MarkedText:
    """Cut a document into lines to translate, and the rest.

    Raises:
        UnknownNameError: the kind is none of "html", "markdown" and "subtitles".
    """
    check_known("markup", kind, PARSERS)
    return PARSERS[kind](document)


def translate_markup(
    translator: Translator,
    documents: Sequence[str],
    kind: str,
    settings: SearchSettings = GREEDY,
    *,
    language: str | None = None,
    selector: AttentionSelector | None = None,
    search: Search | None = None,
    refuse: Refuse | None = None,
) -> list[str]:
    """Translate documents with markup; every tag comes back once, around the words that attention aligns its own with.

    Args:
        translator: with attention to the source.
        documents: whole documents, or parts of them.
        kind: "html", "markdown" or "subtitles".
        settings: of the search.
        language: the source's code, by whose rules lines are cut into sentences; whole lines are translated unless
            given.
        selector: the attention to read; the run's own choice unless given, see `AttentionSelector.of_run`.
        search: translates sentences; the translator's own, by the settings, unless given.
        refuse: is called with the index of a document, what of it stays as it was, and the reason: a sentence that the
            translator refuses, or a whole document that cannot be read. Unless given, sentences stay without a word,
            and a document raises.

    Raises:
        ArgumentError: the model has no attention to the source.
        DataError: a document cannot be read.
        UnknownNameError: there is no such kind of markup.
    """
    parsed = [_parsed(number, document, kind, refuse) for number, document in enumerate(documents)]
    for line in (line for marked in parsed for line in marked.lines):
        _respell(line, translator)
    splits = [
        split_sentences(text, language or "en", whole=language is None) for marked in parsed for text in marked.texts
    ]
    sentences = [sentence for split in splits for sentence in split.sentences]
    refusals = [translator.refusal(sentence) for sentence in sentences]
    accepted = [sentence for sentence, refusal in zip(sentences, refusals, strict=True) if refusal is None]
    translations = [n_best[0] for n_best in (search(accepted) if search else translator.search(accepted, settings))]
    links = translation_spans(translator, accepted, translations, selector)
    translated = (AlignedText(translation.text, spans) for translation, spans in zip(translations, links, strict=True))
    results = iter(
        [untranslated(text) if reason else next(translated) for text, reason in zip(sentences, refusals, strict=True)]
    )
    owners = (number for number, marked in enumerate(parsed) for _ in marked.lines)
    numbers = [number for number, split in zip(owners, splits, strict=True) for _ in split.sentences]
    for number, sentence, reason in zip(numbers, sentences, refusals, strict=True):
        if reason is not None and refuse is not None:
            refuse(number, sentence, reason)
    aligned = iter([join_aligned(split, [next(results) for _ in split.sentences]) for split in splits])
    return [marked.render([next(aligned) for _ in marked.lines]) for marked in parsed]


def _parsed(number: int, document: str, kind: str, refuse: Refuse | None) -> MarkedText:
    try:
        return parse_markup(document, kind)
    except DataError as error:
        if refuse is None:
            raise
        refuse(number, document, str(error))
        return MarkedText([document])


def _respell(element: Element, translator: Translator) -> None:
    """Replace characters of an element's texts that the translator does not know by variants that it knows."""
    for index, child in enumerate(element.children):
        if isinstance(child, Element):
            _respell(child, translator)
        else:
            element.children[index] = respell_characters(child, translator.source_tokenizer)
