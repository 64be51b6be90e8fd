"""Ranking of layers, heads and row tokens by their agreement with gold links.

A choice among many on the very pairs that judge it reports the luck of the choice too: choose on some pairs, judge on others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from attent.data.text import Gold
from attent.errors import ShapeError
from attent.evaluation.aligner import TokenizedPair, extract_links, merge_to_words
from attent.evaluation.error_rate import Agreement, agreement
from attent.evaluation.forced_decoding import ABOUT, AttentionSelector, forced_decoding
from attent.models.model import EncoderDecoder


def rank_selectors(
    model: EncoderDecoder[Any], pairs: Sequence[TokenizedPair], gold: Sequence[Gold], *, threshold: float | None = None
) -> list[tuple[AttentionSelector, Agreement]]:
    """Judge every layer, every head and the mean over heads, with rows about either token, the lowest error rate first.

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
