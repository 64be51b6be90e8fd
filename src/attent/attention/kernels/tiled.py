"""Any score in memory linear in the sequence, on any device: some rows of queries at a time, recomputed for the backward.

Only the lowered sides and the output are kept; the weights of a tile live while it is computed, and once more while its
gradient is. Rabe and Staats 2021, "Self-attention Does Not Need O(n²) Memory" (arXiv:2112.05682), who tile the keys too.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from attent.attention import formula
from attent.attention.call import Call
from attent.attention.kernels import rows as by_rows
from attent.attention.parts import Side


def why_not(call: Call) -> str | None:
    """Tiles serve every call."""
    return None


def run(call: Call, query: Tensor, key: Side, value: Tensor) -> Tensor:
    """The context of each query, (B, H, Tq, Dv)."""
    lowered = by_rows.lower(call, query, key, value)
    tiles = by_rows.tiles(call)

    def one(ours: Side, theirs: Side, value: Tensor, rows: Tensor) -> Tensor:
        pairs = call.pairs(rows)
        return formula.steps_of(call, pairs, ours, theirs, value, call.allowed(pairs), lowered=True)["output"].to(call.dtype)

    contexts = []
    for tile in tiles:
        rows = torch.arange(tile.start, tile.stop, device=call.device)
        arguments = (by_rows.of_query(lowered.query, slice(tile.start, tile.stop)), lowered.key, lowered.value, rows)
        # one tile alone is within bounds as it is
        if len(tiles) > 1 and torch.is_grad_enabled():
            contexts.append(checkpoint(one, *arguments, use_reentrant=False))
        else:
            contexts.append(one(*arguments))
    if not contexts:
        return value.new_zeros(call.batch, call.heads, 0, call.value_width, dtype=call.dtype)
    return torch.cat(contexts, 2) if len(contexts) > 1 else contexts[0]
