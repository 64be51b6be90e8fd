"""Links between the words of a text and of its translation, read from the attention of the model that wrote it."""

from __future__ import annotations

from collections.abc import Sequence

from attent.data.text import Link
from attent.decoding.search import Translation
from attent.decoding.translator import Translator
from attent.evaluation.aligner import extract_links, merge_to_words, word_indices
from attent.evaluation.forced_decoding import AttentionSelector, source_attention
from attent.evaluation.unk_replacement import token_texts


def translation_links(
    translator: Translator, texts: Sequence[str], translations: Sequence[Translation], selector: AttentionSelector | None = None
) -> list[list[Link]]:
    """Return the links of each text's words, parted by spaces, to those of its translation.

    Args:
        translator: wrote the translations.
        texts: the sources.
        translations: of each of them.
        selector: layer, head and meaning of the rows; the default of `source_attention` unless given.
    """
    sources = [translator.source_tokenizer.encode(text) for text in texts]
    maps = source_attention(translator.model, sources, [item.tokens for item in translations], selector)
    result = []
    for text, translation, weights in zip(texts, translations, maps, strict=True):
        source_words = word_indices(text, translator.source_tokenizer.pieces(text))
        target_words = word_indices(translation.text, token_texts(translation.tokens, translator.target_tokenizer))
        result.append(extract_links(merge_to_words(weights, source_words, target_words)))
    return result
