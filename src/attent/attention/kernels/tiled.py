"""Any score in memory linear in the sequence, on any device: some rows of queries at a time, recomputed for the backward.

Only the lowered sides and the output are kept; the weights of a tile live while it is computed, and once more while its
gradient is. Rabe and Staats 2021, "Self-attention Does Not Need O(n²) Memory" (arXiv:2112.05682), who tile the keys too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attent.attention import formula
from attent.attention.call import Call
from attent.attention.kernels import probe, rows
from attent.attention.kernels.bands import Band, bands
from attent.attention.kernels.recomputed import Tiles
from attent.attention.parts import Side


def why_not(call: Call) -> str | None:
    """Tiles serve every call."""
    return None


def run(call: Call, query: Tensor, key: Side, value: Tensor, between: Callable[[Side, Side], Tensor] | None = None) -> Tensor:
    """The context of each query, (B, H, Tq, Dv).

    `between` computes the scores of two lowered sides in the place of the score's own, holding no more than these.
    """
    if call.is_empty:
        return formula.run(call, query, key, value)
    lowered = rows.lower(call, query, key, value)

    def tile(ours: Side, theirs: Side, value: Tensor, band: Band) -> Tensor:
        pairs = call.pairs(*band.pairs_of(call))
        allowed = call.allowed(pairs)
        return formula.steps_of(call, pairs, ours, theirs, value, allowed, lowered=True, between=between)["output"].to(call.dtype)

    per_pair = 1 if between is not None else probe.per_pair(call, lowered)
    whole = rows.per_row(call, per_pair) * call.queries <= rows.WHOLE * rows.TILE
    tiles = Tiles(call, bands(call, per_pair, rows.WHOLE * rows.TILE if whole else rows.TILE), tile)
    if len(tiles.bands) == 1:
        # one tile alone is within bounds as it is
        return tiles.context(lowered, tiles.bands[0])
    return tiles.differentiable(lowered) if torch.is_grad_enabled() else tiles.once(lowered)
