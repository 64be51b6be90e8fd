"""Tanh forms in tiles whose scores come of `tanh_op`, for every mask, normaliser, bias and position.

On a GPU one kernel takes the softmax and the values along, where every query sees the keys between two.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import torch
from torch import Tensor

from attent.attention.call import Call
from attent.attention.kernels import rows, tanh_op, tiled
from attent.attention.kernels.triton import operators
from attent.attention.parts import Side, TanhScore
from attent.attention.transforms import needs_plain_torch


def why_not(call: Call) -> str | None:
    """What keeps this implementation from a call; None if nothing does."""
    if call.score.form != "tanh":
        return f"score {type(call.score).__name__} has no tanh form"
    return None


def run(call: Call, query: Tensor, key: Side, value: Tensor) -> Tensor:
    """The context of each query, (B, H, Tq, Dv)."""
    if needs_plain_torch():
        # operators of our own would hand out tangents of zero
        return tiled.run(call, query, key, value)
    spans = None if call.is_empty or operators.why_not(call) else operators.spans(call)
    if spans is not None:
        lowered = rows.lower(call, query, key, value)
        ours, theirs = lowered.query.features, lowered.key.features
        v = cast(TanhScore, call.score).direction(ours).reshape(-1, ours.shape[-1])
        # back to 16 bits, from which they came
        return torch.ops.attent.tanh_attention(ours, theirs, v, lowered.value.to(call.dtype), *spans)[0]
    return tiled.run(call, query, key, value, partial(tanh_op.between, cast(TanhScore, call.score)))
