"""Whether attention looks where the answer comes from: maps against known links."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from attent.attention.map import AttentionMap
from attent.attention.watch import watch
from attent.data.batches import BatchSize, Bitext
from attent.data.text import Pair
from attent.data.tokenizer import Tokenizer
from attent.errors import ArgumentError, ShapeError, UnknownNameError
from attent.models.encoder_decoder import EncoderDecoder

Links = Sequence[tuple[int, int]]
BATCH = BatchSize(pairs=64)


@dataclass(frozen=True)
class Alignment:
    """In how many of the rows looked at attention was highest at a linked source position."""

    right: int = 0
    rows: int = 0

    def __add__(self, other: Alignment) -> Alignment:
        return Alignment(self.right + other.right, self.rows + other.rows)

    @property
    def share(self) -> float:
        """Per cent, 0 to 100.

        Raises:
            ArgumentError: no row was looked at.
        """
        if not self.rows:
            raise ArgumentError("no target position that counts has a link")
        return 100 * self.right / self.rows


def alignment(weights: AttentionMap, links: Sequence[Links], targets: Collection[int] | None = None) -> Alignment:
    """Where the mean over heads is highest: in the gold links or not.

        right(t) = [ (argmaxᵢ 1/H Σ_h α_h(t, i), t) ∈ links ]

    Luong et al. (2015), §5.4, arXiv 1508.04025, take one source position a target word in the same way.

    Args:
        weights: (B, H, Tq, Tk), row t of which emits target position t.
        links: for each pair of the batch, (source position, target position) from 0.
        targets: which target positions count; all that have a link unless given.

    Raises:
        ShapeError: the map is not of as many pairs.
    """
    if weights.shape[0] != len(links):
        raise ShapeError(f"the map must be of {len(links)} pairs, (B, H, Tq, Tk), got {weights.shape}")
    highest = weights.dense().mean(1).argmax(-1).tolist()  # (B, Tq)
    total = Alignment()
    for row, gold in zip(highest, map(set, links), strict=True):
        counted = {target for _, target in gold if targets is None or target in targets}
        total += Alignment(sum((row[target], target) in gold for target in counted), len(counted))
    return total


@torch.no_grad()
def aligned(
    model: EncoderDecoder[Any],
    pairs: Sequence[Pair],
    source: Tokenizer,
    target: Tokenizer,
    *,
    name: str | None = None,
    targets: Collection[int] | None = None,
) -> Alignment:
    """The alignment of one attention of a model over pairs with links, while it is given their targets (forced decoding).

    Args:
        model: in evaluation mode.
        pairs: with links, counted in the tokenizers' pieces.
        source: encodes their sources.
        target: encodes their targets.
        name: whose map; the last `cross_attention` unless given.
        targets: which target positions count; all that have a link unless given.

    Raises:
        ArgumentError: no name is given, and the model has no attention to the source.
        UnknownNameError: no attention bears that name.
    """
    total = Alignment()
    for rows, batch in Bitext(pairs, source, target).once(BATCH):
        with watch(model) as seen:
            model.decode(model.encode(batch.source, batch.source_lengths), batch.target_in)
        chosen = name or next((path for path in reversed(list(seen)) if path.endswith("cross_attention")), None)
        if chosen is None:
            raise ArgumentError("a model without attention to the source has no alignment")
        if chosen not in seen:
            raise UnknownNameError("attention", chosen, seen)
        total += alignment(seen[chosen], [pairs[row].links for row in rows], targets)
    return total
