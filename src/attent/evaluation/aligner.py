"""Word alignment: from a pair of texts to links between their words, read from a translator's attention; and which attention to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from attent.data.dates.corpus import target_words
from attent.data.text import Gold, Link
from attent.data.tokenizer import Tokenizer, marks_of
from attent.errors import ShapeError
from attent.evaluation.error_rate import Agreement, agreement
from attent.evaluation.forced_decoding import ABOUT, AttentionSelector, forced_decoding, source_attention
from attent.models.model import EncoderDecoder

Units = Literal["words", "tokens"]
Words = Sequence[int | None]

# The marks by which tokenizers of subwords show where words begin or end.
MARKS = ("▁", "##", "@@", "</w>")


@dataclass(frozen=True)
class TokenizedPair:
    """A pair as a model reads it, and the units that links are between.

    Args:
        source: tokens.
        target: tokens, without BOS and EOS.
        source_words: the word index of each source token; None for tokens outside words.
        target_words: the word index of each target token, likewise.
    """

    source: list[int]
    target: list[int]
    source_words: Words
    target_words: Words


def tokenize_pair(source: str, target: str, tokenizers: tuple[Tokenizer, Tokenizer], units: Units = "words") -> TokenizedPair:
    """Tokenize a pair of texts, to be linked by words, which are separated by spaces, or by tokens.

    Args:
        source: the text that the model reads.
        target: its translation.
        tokenizers: the model's, of the source and of the target.
        units: the ends of the links.
    """
    sides = [(text, tokenizer, tokenizer.encode(text)) for text, tokenizer in zip((source, target), tokenizers, strict=True)]
    words = (range(len(ids)) if units == "tokens" else word_indices(text, _text_pieces(text, tokenizer)) for text, tokenizer, ids in sides)
    return TokenizedPair(*(ids for _, _, ids in sides), *words)


def _text_pieces(text: str, tokenizer: Tokenizer) -> list[str]:
    """Return the pieces of a text, and an empty one for each token that is none of its pieces."""
    marks = marks_of(tokenizer)
    return ["" if token in marks else piece for piece, token in zip(tokenizer.pieces(text), tokenizer.encode(text), strict=True)]


def tokenize_dates(source: str, target: str, tokenizers: tuple[Tokenizer, Tokenizer]) -> TokenizedPair:
    """Tokenize a pair of the dates corpus, to be linked by characters as the gold links of `attent.data.dates.gold` are."""
    return TokenizedPair(tokenizers[0].encode(source), tokenizers[1].encode(target), range(len(source)), target_words(target))


def align(
    model: EncoderDecoder[Any],
    pairs: Sequence[TokenizedPair],
    selector: AttentionSelector | None = None,
    *,
    threshold: float | None = None,
) -> list[list[Link]]:
    """Return the links of each pair, (source word, target word); none for a pair with an empty side.

    Args:
        model: in evaluation mode.
        pairs: sources and their translations.
        selector: layer, head and row token of the weights; the default of `source_attention` unless given.
        threshold: as for `extract_links`.
    """
    maps = source_attention(model, [pair.source for pair in pairs], [pair.target for pair in pairs], selector)
    return [
        extract_links(merge_to_words(weights, pair.source_words, pair.target_words), threshold)
        for weights, pair in zip(maps, pairs, strict=True)
    ]


def rank_selectors(
    model: EncoderDecoder[Any], pairs: Sequence[TokenizedPair], gold: Sequence[Gold], *, threshold: float | None = None
) -> list[tuple[AttentionSelector, Agreement]]:
    """Judge every layer, every head and the mean over heads, with rows about either token, the lowest error rate first.

    A choice among many on the very pairs that judge it reports the luck of the choice too: choose on some pairs, judge on others.

    Args:
        model: in evaluation mode.
        pairs: sources and their translations.
        gold: the gold links of each pair.
        threshold: as for `extract_links`.

    Raises:
        ShapeError: the number of gold links differs from the number of pairs.
    """
    if len(pairs) != len(gold):
        raise ShapeError(f"each of {len(pairs)} pairs needs gold links, got {len(gold)}")
    # the sure links of all pairs, also of those without weights
    total = sum((agreement((), links) for links in gold), Agreement())
    results: dict[AttentionSelector, Agreement] = {}
    for row, attentions in forced_decoding(model, [pair.source for pair in pairs], [pair.target for pair in pairs]):
        for selector in all_selectors([len(weights) for weights in attentions.values()]):
            weights = merge_to_words(selector.of(attentions), pairs[row].source_words, pairs[row].target_words)
            counts = replace(agreement(extract_links(weights, threshold), gold[row]), sure=0)
            results[selector] = results.get(selector, total) + counts
    return sorted(results.items(), key=lambda item: item[1].error_rate)


def all_selectors(heads: Sequence[int]) -> list[AttentionSelector]:
    """Return the selectors of a model with `heads` heads in each layer: every head, and the mean of several heads."""
    return [
        AttentionSelector(layer, head, about)
        for layer, count in enumerate(heads)
        for head in (*range(count), *([None] if count > 1 else []))
        for about in ABOUT
    ]


def word_indices(text: str, pieces: Sequence[str]) -> list[int | None]:
    """Return the index of the space-separated word that each piece lies in, from 0; None for spaces and empty pieces.

    Args:
        text: the text.
        pieces: its pieces in order: characters, subwords or words, with or without marks and spaces.
    """
    starts = piece_starts(text, pieces)
    return [None if start is None else max(len(text[: start + 1].split()) - 1, 0) for start in starts]


def piece_starts(text: str, pieces: Sequence[str]) -> list[int | None]:
    """Return where each piece begins in a text, spaces left out; None for spaces and empty pieces. Arguments as for `word_indices`."""
    starts: list[int | None] = []
    position = 0
    for piece in pieces:
        core = piece.strip()
        start = text.find(core, position)
        if start < 0:
            for mark in MARKS:
                core = core.removeprefix(mark).removesuffix(mark)
            start = text.find(core, position)
        if not core:
            starts.append(None)
            continue
        if start < 0:
            # an unknown piece or a byte has no known position: it belongs to the next character
            start = position + len(text[position:]) - len(text[position:].lstrip())
        else:
            position = start + len(core)
        starts.append(start)
    return starts


def merge_to_words(weights: Tensor, source: Words, target: Words) -> Tensor:
    """Return the weights between words: summed over the pieces of the source word, averaged over those of the target word.

        A(w, u) = 1/|w| Σ_{t ∈ w} Σ_{i ∈ u} α(t, i)

    A row that sums to 1 still does, except for weight on pieces outside words. Source: Clark et al. (2019), §4.1, arXiv
    1906.04341.

    Args:
        weights: (Tq, Tk); row t is about target piece t.
        source: the word index of each source piece; None for pieces to leave out.
        target: the word index of each target piece, likewise.

    Returns:
        (target words, source words); a row of zeros for a word without pieces.
    """
    rows, columns = _piece_shares(target), _piece_shares(source)
    return rows @ weights.double() @ (columns > 0).double().T


def _piece_shares(words: Words) -> Tensor:
    """Return the share of each piece in each word, (words, pieces)."""
    inside = [(word, piece) for piece, word in enumerate(words) if word is not None]
    shares = torch.zeros(max((word for word, _ in inside), default=-1) + 1, len(words), dtype=torch.float64)
    if inside:
        shares[tuple(torch.tensor(inside).T)] = 1
    return shares / shares.sum(1, keepdim=True).clamp(min=1)


def extract_links(weights: Tensor, threshold: float | None = None) -> list[Link]:
    """Link each target word to the source word of the largest weight, or to all whose weight is above a threshold.

        a(t) = argmax_i A(t, i),  or  {(i, t) : A(t, i) > θ}

    Source of the first: Luong et al. (2015), §5.4, arXiv 1508.04025; of equal weights the first one counts.

    Args:
        weights: (Tq, Tk); row t is about target word t.
        threshold: θ; the largest weight alone by default.

    Returns:
        (source word, target word), from 0, in the order of the target; a row of zeros has no link.
    """
    if not weights.numel():
        return []
    if threshold is not None:
        return [(source, target) for target, source in (weights > threshold).nonzero().tolist()]
    maxima, indices = (part.tolist() for part in weights.max(1))
    return [(index, target) for target, (weight, index) in enumerate(zip(maxima, indices, strict=True)) if weight > 0]
