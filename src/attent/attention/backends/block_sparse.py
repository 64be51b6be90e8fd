"""Bands of queries and the keys that they see, from a mask's key ranges: the cost follows the pairs that attend."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attent.attention import mask_info
from attent.attention.backends import row_tiles as by_rows
from attent.attention.call import Call

# Numbers in a tile below which its size costs less than its being one more, and the pairs it may hold for each that is seen.
LEAST, WASTE = 2**17, 1.5
# Rows from which on it is worth asking a mask for bands of any size.
ROWS = 256
# Rows whose keys are gathered together where a mask's keys lie scattered; worth it where they leave less than this share of the run.
GATHERED_ROWS, GATHERED = 64, 0.6


class Band(NamedTuple):
    """A run of rows, and the keys beyond which none of them sees any: side by side, or one by one in ascending order."""

    rows: range
    keys: range | Tensor

    @property
    def pairs(self) -> int:
        """The number of pairs computed."""
        return len(self.rows) * len(self.keys)

    def pairs_of(self, call: Call) -> tuple[Tensor, Tensor]:
        """The indices of its rows and of its keys, as `call.pairs` takes them."""
        rows = torch.arange(self.rows.start, self.rows.stop, device=call.device)
        return rows, self.keys if isinstance(self.keys, Tensor) else torch.arange(self.keys.start, self.keys.stop, device=call.device)

    @property
    def own(self) -> slice:
        """The slice of its rows."""
        return slice(self.rows.start, self.rows.stop)

    @property
    def key_slice(self) -> slice | Tensor:
        """The slice or the indices of its keys."""
        return self.keys if isinstance(self.keys, Tensor) else slice(self.keys.start, self.keys.stop)

    def add(self, total: Tensor, gradient: Tensor) -> None:
        """Add what these keys (B, H, keys, …) have of a gradient to that of all keys."""
        if isinstance(self.keys, Tensor):
            total.index_add_(2, self.keys, gradient)
        else:
            total[:, :, self.key_slice] += gradient


def bands(call: Call, per_pair: int | None = None, tile: int | None = None) -> list[Band]:
    """All rows, in runs that stay within a tile's size and, where the mask knows its reach, see most of the keys they come with.

    Args:
        call: the call.
        per_pair: how many numbers a pair takes while it is computed; the score says if this does not.
        tile: how many numbers a tile may hold.
    """
    tile = tile or by_rows.TILE
    reach = _reach(call)
    if reach is None:
        return [Band(rows, range(call.keys)) for rows in by_rows.tiles(call, per_pair, tile)]
    found = _side_by_side(*reach, by_rows.per_row(call, per_pair) // call.keys, tile)
    assert call.mask is not None
    scattered = call.mask.visible_keys(call.pairs(torch.arange(min(1, call.queries)))) is not None
    return [part for band in found for part in _gathered(call, band)] if scattered else found


def sparse(call: Call, share: float, many: int) -> list[Band] | None:
    """Bands of any size, for what holds no table of pairs; None where they leave more than a share of them, or there are not many.

    Args:
        call: the call.
        share: of the pairs.
        many: how many pairs of all sequences and heads.
    """
    if call.mask is None or call.queries < ROWS or by_rows.per_row(call, 1) * call.queries < many:
        return None
    found = bands(call, 1, sys.maxsize)
    return found if sum(band.pairs for band in found) < share * call.queries * call.keys else None


def _side_by_side(first: np.ndarray, last: np.ndarray, wide: int, tile: int) -> list[Band]:
    queries, seen = len(first), np.concatenate(([0], np.cumsum(np.maximum(last - first, 0)))).tolist()
    # of ends that never go back a run's are those of its first and its last row
    forth = bool((np.diff(first) >= 0).all() and (np.diff(last) >= 0).all())
    begins, behinds = (first.tolist(), last.tolist()) if forth else ([], [])

    def ends(start: int, stop: int) -> tuple[int, int]:
        begin, behind = (begins[start], behinds[stop - 1]) if forth else (int(first[start:stop].min()), int(last[start:stop].max()))
        return begin, max(behind, begin)

    def fits(start: int, stop: int) -> bool:
        begin, behind = ends(start, stop)
        pairs = (stop - start) * (behind - begin)
        return pairs * wide <= tile and (pairs * wide <= LEAST or pairs <= WASTE * (seen[stop] - seen[start]))

    found, start, rows = [], 0, 1
    while start < queries:
        # as many as served the run before, or half of that, or twice
        while rows > 1 and not fits(start, min(start + rows, queries)):
            rows //= 2
        while start + rows < queries and fits(start, min(start + 2 * rows, queries)):
            rows *= 2
        stop = min(start + rows, queries)
        found.append(Band(range(start, stop), range(*ends(start, stop))))
        start = stop
    return found


def _gathered(call: Call, band: Band) -> list[Band]:
    """Split a band whose visible keys are scattered into fewer rows each, with the visible keys gathered."""
    assert call.mask is not None
    found: list[Band] = []
    for start in range(band.rows.start, band.rows.stop, GATHERED_ROWS):
        rows = range(start, min(start + GATHERED_ROWS, band.rows.stop))
        seen = call.mask.visible_keys(call.pairs(torch.arange(rows.start, rows.stop)))
        if seen is None:
            return [band]
        found.append(Band(rows, seen.nonzero()[:, 0]))
    return found if sum(part.pairs for part in found) < GATHERED * band.pairs else [band]


def _reach(call: Call) -> tuple[np.ndarray, np.ndarray] | None:
    """Of each row the first key that any sequence or head sees, and the one behind the last; None where it is not worth asking."""
    if call.mask is None or by_rows.per_row(call, 1) * call.queries <= LEAST or call.device.type != "cpu" or torch.compiler.is_compiling():
        return None
    bounds = mask_info.key_bounds(call)
    if bounds is None:
        return None
    begin, end = bounds
    if begin.shape[0] == begin.shape[1] == 1 == end.shape[0] == end.shape[1]:
        return begin[0, 0].numpy(), end[0, 0].numpy()
    return begin.amin((0, 1)).numpy(), end.amax((0, 1)).numpy()
