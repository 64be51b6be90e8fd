"""Documents with markup, translated by a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attent.data.sentences import SplitText, split_sentences
from attent.decoding.settings import GREEDY, SearchSettings
from attent.decoding.translator import Translator
from attent.errors import check_known
from attent.evaluation.forced_decoding import AttentionSelector
from attent.evaluation.translation_links import Span, translation_spans
from attent.markup.html import MarkedText, parse_html
from attent.markup.inline import AlignedText
from attent.markup.markdown import parse_markdown

PARSERS: dict[str, Callable[[str], MarkedText]] = {"html": parse_html, "markdown": parse_markdown}


def parse_markup(document: str, kind: str) -> MarkedText:
    """Cut a document into lines to translate, and the rest.

    Raises:
        UnknownNameError: the kind is neither "html" nor "markdown".
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
) -> list[str]:
    """Translate documents with markup; every tag comes back once, around the words that attention aligns its own with.

    Args:
        translator: with attention to the source.
        documents: whole documents, or parts of them.
        kind: "html" or "markdown".
        settings: of the search.
        language: the source's code, by whose rules lines are cut into sentences; whole lines are translated unless given.
        selector: the attention to read; the default of `source_attention` unless given.

    Raises:
        ArgumentError: the model has no attention to the source.
        UnknownNameError: there is no such kind of markup.
    """
    parsed = [parse_markup(document, kind) for document in documents]
    splits = [split_sentences(text, language or "en", whole=language is None) for marked in parsed for text in marked.texts]
    sentences = [sentence for split in splits for sentence in split.sentences]
    translations = [n_best[0] for n_best in translator.search(sentences, settings)]
    links = iter(translation_spans(translator, sentences, translations, selector))
    texts = iter(translation.text for translation in translations)
    aligned = iter([join_aligned(split, [AlignedText(next(texts), next(links)) for _ in split.sentences]) for split in splits])
    return [marked.render([next(aligned) for _ in marked.lines]) for marked in parsed]


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
