"""Sequences of different lengths in one batch.

Each computed with its own keys, where the padding would cost more than it saves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from attent.attention import mask_info
from attent.attention.base import LoweredSide
from attent.attention.call import Call, Prepared


def run(
    call: Call,
    query: Tensor,
    key: LoweredSide,
    value: Tensor,
    *,
    key_counts: list[int],
    run_sequence: Callable[[Prepared], Tensor],
) -> Tensor:
    """Compute the context, (B, H, Tq, Dv), of each sequence alone, with the keys that it needs."""
    contexts = []
    sides = zip(*(part.split(1) if part is not None else [None] * call.batch for part in key), strict=True)
    tensors = zip(query.split(1), sides, value.split(1), key_counts, strict=True)
    for sequence, (queries, (features, bias, center), values, keys) in enumerate(tensors):
        if not keys:
            contexts.append(values.new_zeros(1, call.heads, call.queries, call.value_width, dtype=call.dtype))
            continue
        side = LoweredSide(features[:, :, :keys], None if bias is None else bias[:, :, :keys], center)
        contexts.append(
            run_sequence(Prepared(_call_for_sequence(call, sequence, keys), queries, side, values[:, :, :keys]))
        )
    return torch.cat(contexts)


def _call_for_sequence(call: Call, sequence: int, keys: int) -> Call:
    assert call.mask is not None
    bias, start = call.bias, call.start
    if bias is not None:
        bias = bias[sequence : sequence + 1] if len(bias) > 1 else bias
        bias = bias[..., :keys] if bias.shape[3] > 1 else bias
    if isinstance(start, Tensor):
        start = int(start[sequence] if len(start) > 1 else start)
    result = replace(call, bias=bias, start=start, batch=1, keys=keys, axes=4)
    return replace(result, mask=mask_info.mask_for_sequence(call.mask, sequence, result.pairs()))
