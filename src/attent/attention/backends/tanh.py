"""Tanh forms in tiles whose scores come of `tanh_op`, for every mask, normalizer, bias and position.

On a GPU one kernel takes the softmax and the values along, where every query sees the keys between two.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import torch
from torch import Tensor

from attent.attention import mask_info
from attent.attention.backends import row_tiles, tiled
from attent.attention.backends.capabilities import missing
from attent.attention.base import LoweredSide, TanhScore
from attent.attention.call import Call
from attent.ops.eligibility import can_run_triton, needs_plain_torch
from attent.ops.tanh_score import operator

# of the fused GPU kernel
FUSED_CAPABILITIES = frozenset({"gpu"})


def unsupported(call: Call) -> str | None:
    """Return why this backend cannot serve a call, None if it can."""
    if call.score.form != "tanh":
        return f"score {type(call.score).__name__} has no tanh form"
    return None


def run(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> Tensor:
    """The context of each query, (B, H, Tq, Dv)."""
    if needs_plain_torch():
        # operators of our own would hand out tangents of zero
        return tiled.run(call, query, key, value)
    spans = None if call.is_empty or _fused_unsupported(call) else _spans(call)
    if spans is not None:
        lowered = row_tiles.lower(call, query, key, value)
        lowered_query, lowered_key = lowered.query.features, lowered.key.features
        v = cast(TanhScore, call.score).output_weights(lowered_query).reshape(-1, lowered_query.shape[-1])
        # back to 16 bits, from which they came
        return torch.ops.attent.tanh_attention(lowered_query, lowered_key, v, lowered.value.to(call.dtype), *spans)[0]
    return tiled.run(call, query, key, value, partial(fused_scores, cast(TanhScore, call.score)))


def fused_scores(score: TanhScore, query: LoweredSide, key: LoweredSide) -> Tensor:
    """The scores of two lowered sides, (B, H, Tq, Tk); as `score.score_lowered`, which serves functional derivatives."""
    lowered_query, lowered_key = query.features, key.features
    v = score.output_weights(lowered_query).reshape(-1, lowered_query.shape[-1])
    if needs_plain_torch():
        # an operator of one's own would hand out tangents of zero
        return score.score_lowered(query, key)
    return operator.tanh_scores(lowered_query, lowered_key, v)


def _fused_unsupported(call: Call) -> str | None:
    """Return why the fused kernel cannot serve a call of tanh form, None if it can."""
    if not can_run_triton(call.device, call.dtype):
        return "it needs a CUDA device, Triton, and no float64"
    return missing(call, FUSED_CAPABILITIES)


def _spans(call: Call) -> tuple[Tensor, Tensor] | None:
    """The first key that each query sees, and the one behind the last, int32 (B, H, Tq); None where a mask has gaps or does not know.

    Of a query that sees none the first is Tk and the last stands before all.
    """
    shape = (call.batch, call.heads, call.queries)
    if call.mask is None:
        whole = torch.zeros(1, 1, 1, dtype=torch.int32, device=call.device)
        return whole.expand(shape), (whole + call.keys).expand(shape)
    bounds = mask_info.key_bounds(call, exact=True)
    if bounds is None:
        return None
    begin, end = (bound.to(call.device, torch.int32).expand(shape) for bound in bounds)
    return begin, end
