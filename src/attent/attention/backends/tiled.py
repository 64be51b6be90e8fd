"""Any score in memory linear in the sequence, on any device: some rows of queries at a time, recomputed for the backward.

Only the lowered sides and the output are kept; the weights of a tile live while it is computed, and once more while its
gradient is. Rabe and Staats 2021, "Self-attention Does Not Need O(n²) Memory" (arXiv:2112.05682), who tile the keys too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attent.attention import reference
from attent.attention.backends import probe, row_tiles
from attent.attention.backends.block_sparse import Band, bands
from attent.attention.backends.checkpointed import Tiles
from attent.attention.base import LoweredSide
from attent.attention.call import Call


def unsupported(call: Call) -> str | None:
    """Tiles serve every call."""
    return None


def run(
    call: Call, query: Tensor, key: LoweredSide, value: Tensor, score_lowered: Callable[[LoweredSide, LoweredSide], Tensor] | None = None
) -> Tensor:
    """The context of each query, (B, H, Tq, Dv).

    `score_lowered` computes the scores of two lowered sides in the place of the score's own, holding no more than these.
    """
    if call.is_empty:
        return reference.run(call, query, key, value)
    lowered = row_tiles.lower(call, query, key, value)

    def tile(lowered_query: LoweredSide, lowered_key: LoweredSide, value: Tensor, band: Band) -> Tensor:
        pairs = call.pairs(*band.pairs_of(call))
        allowed = call.allowed(pairs)
        return reference.steps_of(call, pairs, lowered_query, lowered_key, value, allowed, lowered=True, score_lowered=score_lowered)[
            "output"
        ].to(call.dtype)

    per_pair = 1 if score_lowered is not None else probe.per_pair(call, lowered)
    whole = row_tiles.per_row(call, per_pair) * call.queries <= row_tiles.WHOLE * row_tiles.TILE
    tiles = Tiles(call, bands(call, per_pair, row_tiles.WHOLE * row_tiles.TILE if whole else row_tiles.TILE), tile)
    if len(tiles.bands) == 1:
        # one tile alone is within bounds as it is
        return tiles.context(lowered, tiles.bands[0])
    return tiles.differentiable(lowered) if torch.is_grad_enabled() else tiles.once(lowered)
