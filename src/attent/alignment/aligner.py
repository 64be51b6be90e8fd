"""Word alignment: links between the words of two texts, read from a translator's attention.

`rank_selectors` ranks the layers and heads to read from by their agreement with gold links.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from attent.alignment.error_rate import Agreement, agreement
from attent.alignment.forced_decoding import ABOUT, AttentionSelector, forced_batches, selected_batches
from attent.errors import ShapeError, refuse
from attent.models.model import EncoderDecoder
from attent.text.text import Gold, Link
from attent.text.tokenizer import Tokenizer, marks_of

Units = Literal["words", "tokens"]
Words = Sequence[int | None]

# Markers of word boundaries in subword tokenizers.
SPACE = "▁"
MARKS = (SPACE, "##", "@@", "</w>")
WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class TokenizedPair:
    """A tokenized pair, and the words that its tokens belong to.

    Args:
        source: source tokens.
        target: target tokens, without BOS and EOS.
        source_words: the word index of each source token; None for tokens outside words.
        target_words: the word index of each target token, likewise.
    """

    source: Sequence[int]
    target: Sequence[int]
    source_words: Words
    target_words: Words


def tokenize_pair(
    source: str, target: str, tokenizers: tuple[Tokenizer, Tokenizer], units: Units = "words"
) -> TokenizedPair:
    """Tokenize a pair of texts for linking by space-separated words or by tokens.

    Args:
        source: the text that the model reads.
        target: its translation.
        tokenizers: the model's source and target tokenizers.
        units: the units to link, words or tokens.
    """
    sides = [
        _ids_and_words(text, tokenizer, units) for text, tokenizer in zip((source, target), tokenizers, strict=True)
    ]
    return TokenizedPair(*(ids for ids, _ in sides), *(words for _, words in sides))


def _ids_and_words(text: str, tokenizer: Tokenizer, units: Units) -> tuple[list[int], Words]:
    ids = tokenizer.encode(text)
    return ids, range(len(ids)) if units == "tokens" else word_indices(text, text_pieces(text, ids, tokenizer))


def text_pieces(text: str, ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """Return the piece of text of each token; empty for special marks, which are not part of the text."""
    pieces, marks = tokenizer.pieces(text, ids), marks_of(tokenizer)
    return ["" if token in marks else piece for piece, token in zip(pieces, ids, strict=True)] if marks else pieces


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
        selector: layer, head and meaning of the rows; by default that of `source_attention`.
        threshold: as for `extract_links`.
    """
    result: list[list[Link]] = [[] for _ in pairs]
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    for rows, weights in selected_batches(model, sources, targets, selector or AttentionSelector()):
        matrices = _merge(weights, [pairs[row] for row in rows])
        for row, links in zip(rows.tolist(), extract_links(matrices, threshold), strict=True):
            result[row] = links
    return result


def all_word_matrices(
    model: EncoderDecoder[Any], pairs: Sequence[TokenizedPair]
) -> Iterator[tuple[np.ndarray, AttentionSelector, Tensor]]:
    """Yield the weights between words for every selector of the model, one batch of pairs at a time, in any order.

    Each item holds the pairs' indices (N,), the selector, and the result of `merge_to_words`.
    """
    for rows, attentions in forced_batches(model, [pair.source for pair in pairs], [pair.target for pair in pairs]):
        batch = [pairs[row] for row in rows]
        for selector in all_selectors([weights.shape[1] for weights in attentions.values()]):
            yield rows, selector, _merge(selector.of(attentions), batch)


def _merge(weights: Tensor, pairs: Sequence[TokenizedPair]) -> Tensor:
    return merge_to_words(weights, [pair.source_words for pair in pairs], [pair.target_words for pair in pairs])


def rank_selectors(
    model: EncoderDecoder[Any], pairs: Sequence[TokenizedPair], gold: Sequence[Gold], *, threshold: float | None = None
) -> list[tuple[AttentionSelector, Agreement]]:
    """Rank every layer, head and mean over heads, with rows about either token, by error rate, lowest first.

    The lowest error rate is too optimistic on the pairs used for the choice: choose on some pairs, evaluate on others.

    Args:
        model: in evaluation mode.
        pairs: sources and their translations.
        gold: the gold links of each pair.
        threshold: as for `extract_links`.

    Raises:
        ShapeError: the number of gold links differs from the number of pairs.
    """
    refuse((len(pairs) != len(gold), f"each of {len(pairs)} pairs needs gold links, got {len(gold)}"), kind=ShapeError)
    # sure links of all pairs, including those without weights
    total = sum((agreement((), links) for links in gold), Agreement())
    results: dict[AttentionSelector, Agreement] = {}
    for rows, selector, matrices in all_word_matrices(model, pairs):
        counts = (
            agreement(links, gold[row]) for row, links in zip(rows, extract_links(matrices, threshold), strict=True)
        )
        results[selector] = results.get(selector, total) + replace(sum(counts, Agreement()), sure=0)
    return sorted(results.items(), key=lambda item: item[1].error_rate)


def all_selectors(heads: Sequence[int]) -> list[AttentionSelector]:
    """Return all selectors of a model, given the number of heads per layer: every head, and means over heads."""
    return [
        AttentionSelector(layer, head, about)
        for layer, count in enumerate(heads)
        for head in (*range(count), *([None] if count > 1 else []))
        for about in ABOUT
    ]


def word_indices(text: str, pieces: Sequence[str]) -> list[int | None]:
    """Return the zero-based index of each piece's space-separated word; None for spaces and empty pieces.

    Args:
        text: the text.
        pieces: its pieces in order: characters, subwords or words, with or without marks and spaces.
    """
    if (indices := _indices_by_spaces(text, pieces)) is not None:
        return indices
    begins = [match.start() for match in WORD.finditer(text)]
    return [None if start is None else max(bisect_right(begins, start) - 1, 0) for start in piece_starts(text, pieces)]


def _indices_by_spaces(text: str, pieces: Sequence[str]) -> list[int | None] | None:
    """Return `word_indices` for pieces that spell the text with "▁" for spaces, only at the beginning of a piece.

    Return None for other pieces.
    """
    words = text.split()
    if " ".join(words) != text or any(mark in text for mark in MARKS):
        return None
    spelling, joined = SPACE.join(words), "".join(pieces)
    if joined not in (spelling, SPACE + spelling):
        return None
    word, indices = 0 if joined == spelling else -1, list[int | None]()
    for piece in pieces:
        word += piece.startswith(SPACE)
        indices.append(None if piece in ("", SPACE) else word)
    # no piece contains a space inside
    return indices if word + 1 == len(words) else None


def piece_starts(text: str, pieces: Sequence[str]) -> list[int | None]:
    """Return the position in a text at which each piece begins, after any space; None for spaces and empty pieces.

    Arguments as for `word_indices`.
    """
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


def merge_to_words(weights: Tensor, sources: Sequence[Words], targets: Sequence[Words]) -> Tensor:
    """Merge weights between pieces into weights between words, for several pairs.

    Weights are summed over the pieces of a source word and averaged over those of a target word.

        A(w, u) = 1/|w| Σ_{t ∈ w} Σ_{i ∈ u} α(t, i)

    A row that sums to 1 still does, except for weight on pieces outside words. Source: Clark et al. (2019), §4.1, arXiv
    1906.04341.

    Args:
        weights: (N, Tq, Tk); row t is about target piece t. Rows and columns beyond those of a pair are ignored, but
            must be finite.
        sources: for each pair, the word index of each source piece; None for pieces to leave out.
        targets: for each pair, the word index of each target piece, likewise.

    Returns:
        (N, target words, source words), padded with zeros; a row of zeros for a word without pieces.
    """
    rows, columns = _memberships(targets, weights.shape[1]), _memberships(sources, weights.shape[2])
    rows /= rows.sum(2, keepdim=True).clamp(min=1)
    return rows @ weights.double() @ columns.transpose(1, 2)


def _memberships(words: Sequence[Words], pieces: int) -> Tensor:
    """Return 1 where a piece belongs to a word and 0 elsewhere, (N, words, pieces)."""
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    indices = np.fromiter((-1 if word is None else word for row in words for word in row), np.int64, int(lengths.sum()))
    pairs = np.repeat(np.arange(len(words)), lengths)
    positions = np.arange(len(indices)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    is_inside = indices >= 0
    memberships = torch.zeros(len(words), int(indices.max(initial=-1)) + 1, pieces, dtype=torch.float64)
    memberships.numpy()[pairs[is_inside], indices[is_inside], positions[is_inside]] = 1
    return memberships


def extract_links(weights: Tensor, threshold: float | None = None) -> list[list[Link]]:
    """Link each target word to the source word with the largest weight, or to all with a weight above a threshold.

        a(t) = argmax_i A(t, i),  or  {(i, t) : A(t, i) > θ}

    The first form is from Luong et al. (2015), §5.4, arXiv 1508.04025; ties go to the first source word.

    Args:
        weights: (N, target words, source words) of several pairs, padded with zeros.
        threshold: θ, at least 0; by default only the largest weight counts.

    Returns:
        The zero-based (source word, target word) links of each pair, in target order; a row of zeros has no link.
    """
    if not weights.numel():
        return [[] for _ in weights]
    if threshold is not None:
        pairs, targets, sources = (weights > threshold).nonzero(as_tuple=True)
    else:
        maxima, indices = weights.max(2)
        pairs, targets = (maxima > 0).nonzero(as_tuple=True)
        sources = indices[pairs, targets]
    links = list(zip(sources.tolist(), targets.tolist(), strict=True))
    ends = torch.bincount(pairs, minlength=len(weights)).cumsum(0).tolist()
    return [links[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
