"""Which layer, which head and which token a row is about agree best with gold links.

Whoever chooses among many on the very pairs that they are judged on reports the luck of the choice too: so they are chosen on some
pairs, and the one chosen is judged on others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attent.data.gold import Gold
from attent.errors import ShapeError
from attent.evaluation.aligner import Sides
from attent.evaluation.error_rate import Agreement, agreement
from attent.evaluation.forced_decoding import ABOUT, Look, forced
from attent.evaluation.links import links
from attent.evaluation.words import merged
from attent.models.encoder_decoder import EncoderDecoder


def ranked(
    model: EncoderDecoder[Any], pairs: Sequence[Sides], gold: Sequence[Gold], *, threshold: float | None = None
) -> list[tuple[Look, Agreement]]:
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
    found: dict[Look, Agreement] = {}
    for row, attentions in forced(model, [pair.source for pair in pairs], [pair.target for pair in pairs]):
        pair = pairs[row]
        for look in looks([len(weights) for weights in attentions.values()]):
            some = links(merged(look.of(attentions), pair.source_words, pair.target_words), threshold)
            # sure links are counted once for all pairs, those without weights included
            one = agreement(some, gold[row])
            found[look] = found.get(look, missed) + Agreement(one.found, 0, one.found_sure, one.found_possible)
    return sorted(found.items(), key=lambda item: item[1].error_rate)


def looks(heads: Sequence[int]) -> list[Look]:
    """All that can be looked at: of each layer, which has so many heads, every head and, where there are several, their mean."""
    return [
        Look(layer, head, about)
        for layer, count in enumerate(heads)
        for head in (*range(count), *([None] if count > 1 else []))
        for about in ABOUT
    ]
