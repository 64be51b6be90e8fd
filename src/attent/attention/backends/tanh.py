"""Tanh forms in tiles whose scores are computed by `ops.tanh_score`, for every mask, normalizer, bias and position.

On a GPU one kernel also computes the softmax and the context, if every query sees a range of keys without gaps.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import torch
from torch import Tensor

from attent.attention import mask_info
from attent.attention.backends import bands, select, tiled
from attent.attention.base import LoweredSide, TanhScore
from attent.attention.call import Call, Prepared
from attent.ops.eligibility import can_run_triton, needs_plain_torch
from attent.ops.tanh_score import operator

# of the fused GPU kernel
FUSED_CAPABILITIES = frozenset({"gpu"})


def unsupported(call: Call) -> str | None:
    """Return why this backend cannot serve a call, None if it can."""
    if call.score.form != "tanh":
        return f"score {type(call.score).__name__} has no tanh form"
    return None


def choose(prepared: Prepared) -> select.Variant:
    """Choose "fused_kernel" on a GPU, else the tiles that `tiled.choose` selects.

    The names of tiles begin with "plain_" if the op cannot run.
    """
    call = prepared.call
    if needs_plain_torch():
        # our own operators would return zero tangents
        name, run = tiled.choose(prepared)
        return select.Variant(f"plain_{name}", run)
    bounds = None if call.is_empty or _fused_unsupported(call) else _key_bounds(call)
    if bounds is not None:
        return select.Variant("fused_kernel", partial(_run_kernel, bounds=bounds))
    return tiled.choose(prepared, partial(fused_scores, cast(TanhScore, call.score)))


def _run_kernel(call: Call, query: Tensor, key: LoweredSide, value: Tensor, *, bounds: tuple[Tensor, Tensor]) -> Tensor:
    """Compute the context, (B, H, Tq, Dv), of queries that see every key within bounds."""
    lowered = bands.lower_sides(call, query, key, value)
    lowered_query, lowered_key = lowered.query.features, lowered.key.features
    v = cast(TanhScore, call.score).output_weights(lowered_query).reshape(-1, lowered_query.shape[-1])
    # back to the 16 bits that the values had
    return torch.ops.attent.tanh_attention(lowered_query, lowered_key, v, lowered.value.to(call.dtype), *bounds)[0]


def fused_scores(score: TanhScore, query: LoweredSide, key: LoweredSide) -> Tensor:
    """Compute the scores of two lowered sides, (B, H, Tq, Tk), as `score.score_lowered`, for functional derivatives."""
    lowered_query, lowered_key = query.features, key.features
    v = score.output_weights(lowered_query).reshape(-1, lowered_query.shape[-1])
    if needs_plain_torch():
        # our own operators would return zero tangents
        return score.score_lowered(query, key)
    return operator.tanh_scores(lowered_query, lowered_key, v)


def _fused_unsupported(call: Call) -> str | None:
    """Return why the fused kernel cannot serve a call of tanh form, None if it can."""
    if not can_run_triton(call.device, call.dtype):
        return "it needs a CUDA device, Triton, and no float64"
    return select.missing_capability(call, FUSED_CAPABILITIES)


def _key_bounds(call: Call) -> tuple[Tensor, Tensor] | None:
    """Return the first key of each query and the end of its range, int32 (B, H, Tq).

    None if the mask has gaps or no ranges. A fully masked query has (Tk, 0).
    """
    shape = (call.batch, call.heads, call.queries)
    if call.mask is None:
        zero = torch.zeros(1, 1, 1, dtype=torch.int32, device=call.device)
        return zero.expand(shape), (zero + call.keys).expand(shape)
    bounds = mask_info.key_bounds(call, exact=True)
    if bounds is None:
        return None
    begin, end = (bound.to(call.device, torch.int32).expand(shape) for bound in bounds)
    return begin, end
