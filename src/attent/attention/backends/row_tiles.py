"""Lowered sides and tiles of rows, shared by the backends and the maps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from attent.attention import reference
from attent.attention.base import DotScore, LoweredSide, Score
from attent.attention.call import Call, lower_key
from attent.attention.mask_info import visible_keys_of
from attent.ops.eligibility import is_known_true

# Numbers that a tile may hold at a time: 4 MiB of float32, so that its intermediates stay in a CPU's caches; and the
# size in tiles up to which a table is computed at once, since tiles are computed twice.
TILE, WHOLE = 2**20, 4


class Lowered(NamedTuple):
    """Both sides lowered in the accumulation type.

    Keys are repeated for every head; those that no query sees are zero.
    """

    query: LoweredSide
    key: LoweredSide
    value: Tensor


def per_row(call: Call, numbers_per_pair: int | None = None) -> int:
    """Count the numbers in memory per row of scores, over all sequences and heads."""
    return max(call.batch * call.heads * call.keys * (numbers_per_pair or call.score.per_pair(call.query_width)), 1)


def tiles(call: Call, numbers_per_pair: int | None = None, tile_size: int | None = None) -> list[range]:
    """Split the rows into ranges that stay within a tile's size."""
    step = max((tile_size or TILE) // per_row(call, numbers_per_pair), 1)
    return [range(first, min(first + step, call.queries)) for first in range(0, call.queries, step)]


def lower(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> Lowered:
    """Lower both sides once, for all rows.

    Keys that no query sees are set to zero before, so that their numbers reach no gradient of the score's parameters.
    """
    lowered_key, value = reference.exact_keys(call, key), call.repeat_kv(value).to(call.accumulation_dtype)
    has_center = not call.lowered and type(call.score).center is not Score.center
    # a finite sum means that all numbers are finite, and then hidden keys cannot leak
    is_finite = is_known_true(
        lambda: torch.isfinite(lowered_key.features.detach().sum() + value.detach().sum()), call.device
    )
    visible_keys = visible_keys_of(call) if has_center or not is_finite else None
    if visible_keys is not None:
        lowered_key, value = reference.zero_hidden_keys(visible_keys, lowered_key, value)
    if not call.lowered:
        lowered_key = lower_key(
            call.score, lowered_key.features, call.heads, call.score.center(lowered_key.features, visible_keys)
        )
    return Lowered(call.score.lower_query(query.to(call.accumulation_dtype), lowered_key.center), lowered_key, value)


def dot_operands(call: Call, query: LoweredSide, key: LoweredSide) -> tuple[Tensor, Tensor, float]:
    """Return features of two lowered sides of a dot form, and the scale.

    The product times the scale is the score under softmax. The key's bias becomes one more feature, against a constant
    in the query: so it has a gradient and fits the fused kernel. The query's bias shifts whole rows, which changes no
    weight.
    """
    assert isinstance(call.score, DotScore)
    scale = call.score.scale(query.features.shape[-1])
    if key.bias is None:
        return query.features, key.features, scale
    constant = query.features.new_full((*query.features.shape[:-1], 1), 1.0 / scale)
    return torch.cat((query.features, constant), -1), torch.cat((key.features, key.bias[..., None]), -1), scale


def some(side: LoweredSide, tokens: Tensor | slice) -> LoweredSide:
    """Select some queries or keys of a side."""
    return LoweredSide(side.features[:, :, tokens], None if side.bias is None else side.bias[:, :, tokens], side.center)
