"""Lowered sides, and the pairs of a call in tiles of rows, or in bands of queries with the keys that they see.

Bands come from a mask's key ranges, so the cost depends on the pairs that attend.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attent.attention import mask_info, reference
from attent.attention.base import DotScore, LoweredSide, Score
from attent.attention.call import Call, lower_key
from attent.ops.eligibility import is_known_true

# Numbers that a tile may hold at a time: 4 MiB of float32, so that its intermediates stay in a CPU's caches; and the
# size in tiles up to which a table is computed in one pass, since tiles are computed twice.
TILE, WHOLE = 2**20, 4
# A tile of fewer numbers costs less than one more tile would; and the pairs that a tile may hold for each visible
# one.
LEAST, WASTE = 2**17, 1.5
# The fewest rows for which bands of any size are worth computing.
ROWS = 256
# Rows whose keys are gathered together where a mask scatters them; worth it if less than this share of the band's pairs
# is left.
GATHERED_ROWS, GATHERED = 64, 0.6


class Lowered(NamedTuple):
    """Both sides lowered in the accumulation type.

    Keys are repeated for every head; those that no query sees are zero.
    """

    query: LoweredSide
    key: LoweredSide
    value: Tensor


def numbers_per_row(call: Call, numbers_per_pair: int | None = None) -> int:
    """Count the numbers in memory per row of scores, over all sequences and heads."""
    return max(call.batch * call.heads * call.keys * (numbers_per_pair or call.score.per_pair(call.query_width)), 1)


def row_tiles(call: Call, numbers_per_pair: int | None = None, tile_size: int | None = None) -> list[range]:
    """Split the rows into ranges that stay within a tile's size."""
    step = max((tile_size or TILE) // numbers_per_row(call, numbers_per_pair), 1)
    return [range(first, min(first + step, call.queries)) for first in range(0, call.queries, step)]


def lower_sides(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> Lowered:
    """Lower both sides once, for all rows."""
    lowered_key, value = lower_keys(call, key, value)
    return Lowered(call.score.lower_query(query.to(call.accumulation_dtype), lowered_key.center), lowered_key, value)


def lower_keys(call: Call, key: LoweredSide, value: Tensor) -> tuple[LoweredSide, Tensor]:
    """Lower the keys, and return them with the values.

    Keys that no query sees are set to zero first, so that their numbers reach no gradient of the score's parameters.
    """
    lowered_key, value = reference.exact_keys(call, key), call.repeat_kv(value).to(call.accumulation_dtype)
    has_center = not call.lowered and type(call.score).center is not Score.center
    # a finite sum means that all numbers are finite, and then hidden keys cannot leak
    is_finite = is_known_true(
        lambda: torch.isfinite(lowered_key.features.detach().sum() + value.detach().sum()), call.device
    )
    visible_keys = mask_info.visible_keys_of(call) if has_center or not is_finite else None
    if visible_keys is not None:
        lowered_key, value = reference.zero_hidden_keys(visible_keys, lowered_key, value)
    if not call.lowered:
        lowered_key = lower_key(
            call.score, lowered_key.features, call.heads, call.score.center(lowered_key.features, visible_keys)
        )
    return lowered_key, value


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


def select_tokens(side: LoweredSide, tokens: Tensor | slice) -> LoweredSide:
    """Select some queries or keys of a side."""
    return LoweredSide(side.features[:, :, tokens], None if side.bias is None else side.bias[:, :, tokens], side.center)


class Band(NamedTuple):
    """A run of rows and all keys that they see: a range, or indices in ascending order."""

    rows: range
    keys: range | Tensor

    @property
    def pairs(self) -> int:
        """The number of pairs computed."""
        return len(self.rows) * len(self.keys)

    def pairs_of(self, call: Call) -> tuple[Tensor, Tensor]:
        """Return the indices of its rows and of its keys, as `call.pairs` expects them."""
        rows = torch.arange(self.rows.start, self.rows.stop, device=call.device)
        return rows, self.keys if isinstance(self.keys, Tensor) else torch.arange(
            self.keys.start, self.keys.stop, device=call.device
        )

    @property
    def own(self) -> slice:
        """The slice of its rows."""
        return slice(self.rows.start, self.rows.stop)

    @property
    def key_slice(self) -> slice | Tensor:
        """The slice or the indices of its keys."""
        return self.keys if isinstance(self.keys, Tensor) else slice(self.keys.start, self.keys.stop)

    def add_key_gradient(self, total: Tensor, gradient: Tensor) -> None:
        """Add the gradient of these keys, (B, H, keys, …), to that of all keys."""
        if isinstance(self.keys, Tensor):
            total.index_add_(2, self.keys, gradient)
        else:
            total[:, :, self.key_slice] += gradient


def split_into_bands(call: Call, numbers_per_pair: int | None = None, tile_size: int | None = None) -> list[Band]:
    """Split all rows into bands within a tile's size whose rows see most of the band's keys.

    The keys that a row sees are known if the mask has key ranges.

    Args:
        call: the call.
        numbers_per_pair: the numbers in memory per pair; by default the score's own count.
        tile_size: how many numbers a tile may hold.
    """
    tile_size = tile_size or TILE
    reach = _key_ranges_of_rows(call)
    if reach is None:
        return [Band(rows, range(call.keys)) for rows in row_tiles(call, numbers_per_pair, tile_size)]
    parts = _contiguous_bands(*reach, numbers_per_row(call, numbers_per_pair) // call.keys, tile_size)
    assert call.mask is not None
    is_scattered = call.mask.visible_keys(call.pairs(torch.arange(min(1, call.queries)))) is not None
    return [part for band in parts for part in _gather_visible_keys(call, band)] if is_scattered else parts


def is_worthwhile(call: Call, max_share: float, min_pairs: int) -> bool:
    """Return whether computing only the pairs of bands is faster than computing all pairs.

    Args:
        call: the call.
        max_share: the bands must hold a smaller share of all pairs than this.
        min_pairs: the smallest number of pairs, over all sequences and heads, for which bands are considered.
    """
    if (
        torch.compiler.is_compiling()
        or call.mask is None
        or call.queries < ROWS
        or numbers_per_row(call, 1) * call.queries < min_pairs
    ):
        return False
    parts = split_into_bands(call, 1, sys.maxsize)
    return sum(band.pairs for band in parts) < max_share * call.queries * call.keys


def _contiguous_bands(begin: np.ndarray, end: np.ndarray, numbers_per_pair: int, tile_size: int) -> list[Band]:
    """Split rows with these key ranges into bands, each with one range of keys."""
    queries, visible = len(begin), np.concatenate(([0], np.cumsum(np.maximum(end - begin, 0)))).tolist()
    # if no bound ever falls, a band's bounds are those of its first and its last row
    is_ascending = bool((np.diff(begin) >= 0).all() and (np.diff(end) >= 0).all())
    begins, ends = (begin.tolist(), end.tolist()) if is_ascending else ([], [])

    def bounds(start: int, stop: int) -> tuple[int, int]:
        low = begins[start] if is_ascending else int(begin[start:stop].min())
        return low, max(ends[stop - 1] if is_ascending else int(end[start:stop].max()), low)

    def fits(start: int, stop: int) -> bool:
        low, high = bounds(start, stop)
        pairs = (stop - start) * (high - low)
        return pairs * numbers_per_pair <= tile_size and (
            pairs * numbers_per_pair <= LEAST or pairs <= WASTE * (visible[stop] - visible[start])
        )

    parts, start, rows = [], 0, 1
    while start < queries:
        # try the previous band's number of rows, then half or twice as many
        while rows > 1 and not fits(start, min(start + rows, queries)):
            rows //= 2
        while start + rows < queries and fits(start, min(start + 2 * rows, queries)):
            rows *= 2
        stop = min(start + rows, queries)
        parts.append(Band(range(start, stop), range(*bounds(start, stop))))
        start = stop
    return parts


def _gather_visible_keys(call: Call, band: Band) -> list[Band]:
    """Split a band whose visible keys are scattered into fewer rows each, with the visible keys gathered."""
    assert call.mask is not None
    parts: list[Band] = []
    for start in range(band.rows.start, band.rows.stop, GATHERED_ROWS):
        rows = range(start, min(start + GATHERED_ROWS, band.rows.stop))
        visible = call.mask.visible_keys(call.pairs(torch.arange(rows.start, rows.stop)))
        if visible is None:
            return [band]
        parts.append(Band(rows, visible.nonzero()[:, 0]))
    return parts if sum(part.pairs for part in parts) < GATHERED * band.pairs else [band]


def _key_ranges_of_rows(call: Call) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the first key that each row sees in any sequence or head, and the end of its range.

    None if computing them would not pay off.
    """
    if (
        call.mask is None
        or numbers_per_row(call, 1) * call.queries <= LEAST
        or call.device.type != "cpu"
        or torch.compiler.is_compiling()
    ):
        return None
    bounds = mask_info.key_bounds(call)
    return None if bounds is None else (bounds[0].amin((0, 1)).numpy(), bounds[1].amax((0, 1)).numpy())
