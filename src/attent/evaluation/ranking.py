"""Which layer, which head and which token a row is about agree best with gold links.

Whoever chooses among many on the very pairs that they are judged on reports the luck of the choice too: so they are chosen on some
pairs, and the one chosen is judged on others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attent.data.gold import Gold
from attent.errors import ShapeError
from attent.evaluation.aligner import TokenizedPair
from attent.evaluation.error_rate import Agreement, agreement
from attent.evaluation.forced_decoding import ABOUT, AttentionSelector, forced_decoding
from attent.evaluation.links import extract_links
from attent.evaluation.words import merge_to_words
from attent.models.encoder_decoder import EncoderDecoder


def rank_selectors(
    model: EncoderDecoder[Any], pairs: Sequence[TokenizedPair], gold: Sequence[Gold], *, threshold: float | None = None
) -> list[tuple[AttentionSelector, Agreement]]:
    """Every layer, every head and the mean over heads, with rows about either token, the lowest alignment error rate first.

    Args:
        model: in evaluation mode.
        pairs: sources and their translations.
        gold: the links of each.
        threshold: as for `links`.

    Raises:
        ShapeError: there are not as many gold links as pairs.
    """
    if len(pairs) != len(gold):
        raise ShapeError(f"each of {len(pairs)} pairs needs gold links, got {len(gold)}")
    missed = sum((agreement((), each) for each in gold), Agreement())
    found: dict[AttentionSelector, Agreement] = {}
    for row, attentions in forced_decoding(model, [pair.source for pair in pairs], [pair.target for pair in pairs]):
        pair = pairs[row]
        for look in all_selectors([len(weights) for weights in attentions.values()]):
            some = extract_links(merge_to_words(look.of(attentions), pair.source_words, pair.target_words), threshold)
            # sure links are counted once for all pairs, those without weights included
            one = agreement(some, gold[row])
            found[look] = found.get(look, missed) + Agreement(one.predicted, 0, one.predicted_sure, one.predicted_possible)
    return sorted(found.items(), key=lambda item: item[1].error_rate)


def all_selectors(heads: Sequence[int]) -> list[AttentionSelector]:
    """All that can be looked at: of each layer, which has so many heads, every head and, where there are several, their mean."""
    return [
        AttentionSelector(layer, head, about)
        for layer, count in enumerate(heads)
        for head in (*range(count), *([None] if count > 1 else []))
        for about in ABOUT
    ]
