"""Pairs of texts and the links between their words, read from a model that is given both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from attent.data.dates.gold import target_words
from attent.data.gold import Link
from attent.data.tokenizer import Tokenizer
from attent.evaluation.forced_decoding import AttentionSelector, source_attention
from attent.evaluation.links import extract_links
from attent.evaluation.words import Words, merge_to_words, word_indices
from attent.models.encoder_decoder import EncoderDecoder

Units = Literal["words", "tokens"]


@dataclass(frozen=True)
class TokenizedPair:
    """A pair as a model reads it, and what links are to be between.

    Args:
        source: tokens.
        target: tokens, without BOS and EOS.
        source_words: the word of each source token; None for those that are in no word.
        target_words: the same of the target.
    """

    source: list[int]
    target: list[int]
    source_words: Words
    target_words: Words


def tokenize_pair(source: str, target: str, tokenizers: tuple[Tokenizer, Tokenizer], units: Units = "words") -> TokenizedPair:
    """A pair of texts, to be linked by words, which are what spaces part, or by tokens.

    Args:
        source: the text that is read.
        target: its translation.
        tokenizers: the model's, of the source and of the target.
        units: what links are between.
    """
    tokens = [tokenizer.encode(text) for tokenizer, text in zip(tokenizers, (source, target), strict=True)]
    if units == "tokens":
        return TokenizedPair(*tokens, *(range(len(some)) for some in tokens))
    return TokenizedPair(
        *tokens, *(word_indices(text, tokenizer.pieces(text)) for tokenizer, text in zip(tokenizers, (source, target), strict=True))
    )


def tokenize_dates(source: str, target: str, tokenizers: tuple[Tokenizer, Tokenizer]) -> TokenizedPair:
    """A pair of the dates corpus, to be linked by characters, as `attent.data.dates.gold` has its gold links."""
    reader, writer = tokenizers
    return TokenizedPair(reader.encode(source), writer.encode(target), range(len(source)), target_words(target))


def align(
    model: EncoderDecoder[Any], pairs: Sequence[TokenizedPair], look: AttentionSelector | None = None, *, threshold: float | None = None
) -> list[list[Link]]:
    """The links of each pair, (source word, target word); none of one with an empty side.

    Args:
        model: in evaluation mode.
        pairs: sources and their translations.
        look: which of the model's weights; as `looked_at` has it unless given.
        threshold: as for `links`.
    """
    maps = source_attention(model, [pair.source for pair in pairs], [pair.target for pair in pairs], look)
    between = (merge_to_words(weights, pair.source_words, pair.target_words) for weights, pair in zip(maps, pairs, strict=True))
    return [extract_links(weights, threshold) for weights in between]
