"""Links between the words of a text and of its translation, read from the attention of the model that wrote it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial

from attent.alignment.aligner import piece_starts, word_indices
from attent.alignment.forced_decoding import AttentionSelector, source_attention
from attent.alignment.unk_replacement import token_texts
from attent.alignment.word_links import extract_links, merge_to_words
from attent.search.search import Translation
from attent.tasks.translation.glossary import Glossary
from attent.tasks.translation.term_search import TermSearch
from attent.tasks.translation.translator import Translator
from attent.text.text import Link
from attent.text.units import Span, units


def translation_links(
    translator: Translator,
    texts: Sequence[str],
    translations: Sequence[Translation],
    selector: AttentionSelector | None = None,
) -> list[list[Link]]:
    """Return the links of each text's words, parted by spaces, to those of its translation.

    Args:
        translator: wrote the translations.
        texts: the sources.
        translations: of each of them.
        selector: layer, head and meaning of the rows; the run's own choice unless given, see
            `AttentionSelector.of_run`.
    """
    sources = [translator.source_tokenizer.encode(text) for text in texts]
    selector = selector or AttentionSelector.of_run(translator.config)
    maps = source_attention(translator.model, sources, [item.tokens for item in translations], selector)
    result = []
    for text, translation, weights in zip(texts, translations, maps, strict=True):
        source_words = word_indices(text, translator.source_tokenizer.pieces(text))
        target_words = word_indices(translation.text, token_texts(translation.tokens, translator.target_tokenizer))
        result.append(extract_links(merge_to_words(weights, source_words, target_words)))
    return result


def translation_spans(
    translator: Translator,
    texts: Sequence[str],
    translations: Sequence[Translation],
    selector: AttentionSelector | None = None,
) -> list[list[tuple[Span, Span]]]:
    """Return which characters of each translation belong to which of its text: words and signs, each by itself.

    Arguments as for `translation_links`.
    """
    sources = [translator.source_tokenizer.encode(text) for text in texts]
    selector = selector or AttentionSelector.of_run(translator.config)
    maps = source_attention(translator.model, sources, [item.tokens for item in translations], selector)
    result = []
    for text, translation, weights in zip(texts, translations, maps, strict=True):
        target = translation.text
        source_spans, target_spans = units(text), units(target)
        source_units = _unit_indices(source_spans, piece_starts(text, translator.source_tokenizer.pieces(text)))
        pieces = token_texts(translation.tokens, translator.target_tokenizer)
        links = extract_links(
            merge_to_words(weights, source_units, _unit_indices(target_spans, piece_starts(target, pieces)))
        )
        result.append([(source_spans[first], target_spans[second]) for first, second in links])
    return result


def glossary_search(translator: Translator, glossary: Glossary) -> TermSearch:
    """Return a search with the terms of a glossary, by the attention that the run's words are aligned by."""
    attention = partial(source_attention, translator.model, selector=AttentionSelector.of_run(translator.config))
    return TermSearch(translator, glossary, attention)


def _unit_indices(spans: Sequence[Span], starts: Sequence[int | None]) -> list[int | None]:
    """Return the index of the unit that each position lies in; None where it lies in none."""
    begins = [span.begin for span in spans]
    indices = [None if start is None else bisect_right(begins, start) - 1 for start in starts]
    return [
        None if index is None or start is None or index < 0 or start >= spans[index].end else index
        for index, start in zip(indices, starts, strict=True)
    ]
