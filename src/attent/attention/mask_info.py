"""Key ranges and visible keys of a call's mask.

Everything that backends need to know about a mask, derived from `Mask.allowed` and `Mask.key_range`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attent.attention.base import KeyRange, Mask, Or, Pairs

# A `Call`, whose module imports this one.
Call = Any
# Pairs per chunk when every pair is examined.
CHUNK = 2**20


def key_bounds(call: Call) -> tuple[Tensor, Tensor] | None:
    """Return the first key of each query and the end of its range, (B|1, H|1, Tq) each, from 0 to Tk.

    A fully masked query has (Tk, 0). None if the mask has no range.
    """
    key_range = call.key_range
    if key_range is None:
        return None
    begin, end = (bound.clamp(0, call.keys).squeeze(-1).expand(-1, -1, call.queries) for bound in key_range[:2])
    is_empty = end <= begin
    return begin.masked_fill(is_empty, call.keys), end.masked_fill(is_empty, 0)


def needs_table(call: Call) -> bool:
    """Return whether the mask cannot be described by one range of keys per query.

    Only a table of all pairs describes such a mask.
    """
    return call.mask is not None and (call.key_range is None or not call.key_range.exact)


def visible_keys_of(call: Call) -> Tensor | None:
    """Return which keys any query sees, (B|1, H|1, Tk); None if no key is hidden."""
    if call.bias is not None and call.bias.shape[2] != 1:
        return _visible_keys_by_pairs(call, call.allowed)
    keys = None if call.mask is None else _visible_keys_by_mask(call, call.mask)
    if call.bias is None:
        return keys
    # a bias that is the same for every query hides whole keys
    finite = (call.bias != -torch.inf).expand(*call.bias.shape[:2], 1, call.keys)[:, :, 0]
    return finite if keys is None else keys & finite


def _visible_keys_by_mask(call: Call, mask: Mask) -> Tensor | None:
    if isinstance(mask, Or):
        left, right = _visible_keys_by_mask(call, mask.left), _visible_keys_by_mask(call, mask.right)
        return left | right if left is not None and right is not None else None
    key_range = _key_range_of(call, mask)
    if key_range is None or not key_range.exact or not call.queries:
        return _visible_keys_by_pairs(call, mask.allowed)
    # count +1 where a range begins and −1 where it ends; a key is visible where the running sum is positive
    begin, end = (bound.clamp(0, call.keys)[..., 0] for bound in key_range[:2])
    begin, end = torch.broadcast_tensors(begin, torch.maximum(begin, end))
    counts = torch.zeros(*begin.shape[:2], call.keys + 1, dtype=torch.int64, device=call.device)
    ones = torch.ones_like(begin)
    counts.scatter_add_(-1, begin, ones).scatter_add_(-1, end, -ones)
    return counts[..., :-1].cumsum(-1) > 0


def _visible_keys_by_pairs(call: Call, allowed: Callable[[Pairs], Tensor | None]) -> Tensor | None:
    total, step = None, max(CHUNK // max(call.batch * call.heads * call.keys, 1), 2)
    for first in range(0, call.queries, step):
        rows = range(first, min(first + step, call.queries))
        pairs = allowed(call.pairs(torch.arange(rows.start, rows.stop, device=call.device)))
        if pairs is None:
            return None
        keys = pairs.any(-2)
        total = keys if total is None else total | keys
        if pairs.shape[-2] < len(rows):  # the same for every query
            break
    return total


def _key_range_of(call: Call, mask: Mask) -> KeyRange | None:
    """Return the key range of the call's mask, or of a mask that is part of it."""
    return call.key_range if mask is call.mask else mask.key_range(call.pairs())


def mask_for_sequence(begin: Tensor, end: Tensor, keys: int) -> KeyRanges | None:
    """Return the mask of one sequence with these ranges of its first keys, (1, H|1, Tq); None if it hides none."""
    return None if bool((begin <= 0).all() & (end >= keys).all()) else KeyRanges(begin, end)


@dataclass(frozen=True, eq=False)
class KeyRanges(Mask):
    """A range of keys for each query.

    Args:
        begin: the first key, (B|1, H|1, Tq).
        end: the end of the range, excluded; a range that ends at or before its first key hides all keys.
    """

    begin: Tensor
    end: Tensor

    def allowed(self, pairs: Pairs) -> Tensor:
        """Return which pairs may attend, (B|1, H|1, Tq, Tk)."""
        begin, end, _ = self.key_range(pairs)
        return (pairs.key_index >= begin) & (pairs.key_index < end)

    def key_range(self, pairs: Pairs) -> KeyRange:
        """Return the range."""
        return KeyRange(self.begin[:, :, pairs.query_index, None], self.end[:, :, pairs.query_index, None], exact=True)
