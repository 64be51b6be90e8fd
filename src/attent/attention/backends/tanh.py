"""Tanh forms in tiles whose scores are computed by `ops.tanh_score`, for every mask, normalizer, bias and position."""

from functools import partial
from typing import cast

from torch import Tensor

from attent.attention.backends import select, tiled
from attent.attention.base import LoweredSide, TanhScore
from attent.attention.call import Call, Prepared
from attent.ops.eligibility import needs_plain_torch
from attent.ops.tanh_score import operator


def unsupported(call: Call) -> str | None:
    """Return why this backend cannot serve a call, None if it can."""
    return None if call.score.form == "tanh" else f"score {type(call.score).__name__} has no tanh form"


def choose(prepared: Prepared) -> select.Variant:
    """Choose the tiles that `tiled.choose` selects; their names begin with "plain_" if the op cannot run."""
    if needs_plain_torch():
        # our own operators would return zero tangents
        name, run = tiled.choose(prepared)
        return select.Variant(f"plain_{name}", run)
    return tiled.choose(prepared, partial(fused_scores, cast(TanhScore, prepared.call.score)))


def fused_scores(score: TanhScore, query: LoweredSide, key: LoweredSide) -> Tensor:
    """Compute the scores of two lowered sides, (B, H, Tq, Tk), as `score.score_lowered`, for functional derivatives."""
    lowered_query, lowered_key = query.features, key.features
    v = score.output_weights(lowered_query).reshape(-1, lowered_query.shape[-1])
    if needs_plain_torch():
        # our own operators would return zero tangents
        return score.score_lowered(query, key)
    return operator.tanh_scores(lowered_query, lowered_key, v)
