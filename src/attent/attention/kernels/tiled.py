"""Any score in memory linear in the sequence, on any device: some rows of queries at a time, recomputed for the backward.

Only the lowered sides and the output are kept; the weights of a tile live while it is computed, and once more while its
gradient is. Rabe and Staats 2021, "Self-attention Does Not Need O(n²) Memory" (arXiv:2112.05682), who tile the keys too.
"""

from __future__ import annotations

from collections.abc import Callable

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


def run(call: Call, query: Tensor, key: Side, value: Tensor, between: Callable[[Side, Side], Tensor] | None = None) -> Tensor:
    """The context of each query, (B, H, Tq, Dv).

    `between` computes the scores of two lowered sides in the place of the score's own, holding no more than these.
    """
    lowered = by_rows.lower(call, query, key, value)
    bands = by_rows.bands(call, None if between is None else 1)

    def one(ours: Side, theirs: Side, value: Tensor, band: by_rows.Band) -> Tensor:
        pairs = call.pairs(*(torch.arange(some.start, some.stop, device=call.device) for some in band))
        allowed = call.allowed(pairs)
        return formula.steps_of(call, pairs, ours, theirs, value, allowed, lowered=True, between=between)["output"].to(call.dtype)

    contexts = []
    for band in bands:
        rows, keys = (slice(some.start, some.stop) for some in band)
        arguments = (by_rows.some(lowered.query, rows), by_rows.some(lowered.key, keys), lowered.value[:, :, keys], band)
        # one tile alone is within bounds as it is
        if len(bands) > 1 and torch.is_grad_enabled():
            contexts.append(checkpoint(one, *arguments, use_reentrant=False))
        else:
            contexts.append(one(*arguments))
    if not contexts:
        return value.new_zeros(call.batch, call.heads, 0, call.value_width, dtype=call.dtype)
    return torch.cat(contexts, 2) if len(contexts) > 1 else contexts[0]
