"""Some rows at a time: what the tiled implementation and the maps share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attent.attention import formula
from attent.attention.call import Call, lower_key
from attent.attention.parts import Either, Mask, Pairs, Side

# numbers that a tile may hold at a time: 16 MiB of float32, which a CPU's caches nearly hold
TILE = 2**22
# numbers in a tile below which its size costs less than its being one more, and the pairs it may hold for each that is seen
LEAST, WASTE = 2**17, 1.5


class Lowered(NamedTuple):
    """Both sides lowered, every head spread, in exact type, with the keys that no query sees emptied."""

    query: Side
    key: Side
    value: Tensor


def per_row(call: Call, per_pair: int | None = None) -> int:
    """How many numbers one row of scores takes while it is computed, over all sequences and heads; the score says how many a pair."""
    return max(call.batch * call.heads * call.keys * (per_pair or call.score.per_pair(call.query_width)), 1)


def tiles(call: Call, per_pair: int | None = None) -> list[range]:
    """The rows, in runs that stay within a tile's size."""
    step = max(TILE // per_row(call, per_pair), 1)
    return [range(first, min(first + step, call.queries)) for first in range(0, call.queries, step)]


class Band(NamedTuple):
    """A run of rows, and the run of keys beyond which none of them sees any."""

    rows: range
    keys: range


def bands(call: Call, per_pair: int | None = None) -> list[Band]:
    """The rows, in runs that stay within a tile's size and, where the mask knows its reach, see most of the keys they come with."""
    reach = _reach(call)
    if reach is None:
        return [Band(rows, range(call.keys)) for rows in tiles(call, per_pair)]
    first, last = reach
    wide, seen = per_row(call, per_pair) // call.keys, np.concatenate(([0], np.cumsum(np.maximum(last - first, 0))))

    def fits(start: int, stop: int) -> bool:
        pairs = (stop - start) * max(int(last[start:stop].max() - first[start:stop].min()), 0)
        return pairs * wide <= TILE and (pairs * wide <= LEAST or pairs <= WASTE * (seen[stop] - seen[start]))

    found, start = [], 0
    while start < call.queries:
        rows = 1
        while start + rows < call.queries and fits(start, min(start + 2 * rows, call.queries)):
            rows *= 2
        stop = min(start + rows, call.queries)
        begin = int(first[start:stop].min())
        found.append(Band(range(start, stop), range(begin, max(int(last[start:stop].max()), begin))))
        start = stop
    return found


def share_seen(call: Call) -> float:
    """At most this share of all pairs may attend, as far as the mask's reach tells."""
    reach = _reach(call)
    return 1.0 if reach is None else float(np.maximum(reach[1] - reach[0], 0).sum()) / (call.queries * call.keys)


def _reach(call: Call) -> tuple[np.ndarray, np.ndarray] | None:
    """Of each row the first key that any sequence or head sees, and the one behind the last; None where it is not worth asking."""
    if call.mask is None or call.queries * call.keys <= LEAST or call.device.type != "cpu" or torch.compiler.is_compiling():
        return None
    found = call.mask.reach(call.pairs())
    if found is None:
        return None
    first, last = (end.expand(-1, -1, call.queries, 1)[..., 0] for end in found)
    first, behind = first.clamp(0, call.keys), (last + 1).clamp(0, call.keys)
    # a row that sees nothing asks for nothing
    nothing = behind <= first
    first, behind = first.masked_fill(nothing, call.keys), behind.masked_fill(nothing, 0)
    return first.amin((0, 1)).numpy(), behind.amax((0, 1)).numpy()


def visible(call: Call) -> Tensor | None:
    """Which keys any query sees, (B|1, H|1, Tk); None where nothing hides any."""
    # a bias that is the same for every query hides whole keys, whatever else does
    alike = call.bias is not None and call.bias.shape[2] == 1
    if call.bias is not None and not alike:
        return _looked_at(call, call.allowed)
    seen = None if call.mask is None else _seen(call, call.mask)
    if call.bias is None:
        return seen
    shown = (call.bias != -torch.inf).expand(*call.bias.shape[:2], 1, call.keys)[:, :, 0]
    return shown if seen is None else seen & shown


def _seen(call: Call, mask: Mask) -> Tensor | None:
    """Which keys any query sees through a mask; pair by pair only where the mask knows no shorter way."""
    if isinstance(mask, Either):
        one, other = _seen(call, mask.one), _seen(call, mask.other)
        return one | other if one is not None and other is not None else None
    pairs = call.pairs()
    spans = mask.span(pairs)
    if spans is None or not call.queries:
        return _looked_at(call, mask.allowed)
    first, last = spans
    # each query adds one where it begins to see and takes one where it ends; what is left above zero is seen
    begin, end = first.clamp(0, call.keys)[..., 0], (last + 1).clamp(0, call.keys)[..., 0]
    begin, end = torch.broadcast_tensors(begin, torch.maximum(begin, end))
    counts = torch.zeros(*begin.shape[:2], call.keys + 1, dtype=torch.int64, device=call.device)
    one = torch.ones_like(begin)
    counts.scatter_add_(-1, begin, one).scatter_add_(-1, end, -one)
    return counts[..., :-1].cumsum(-1) > 0


def _looked_at(call: Call, allowed: Callable[[Pairs], Tensor | None]) -> Tensor | None:
    """The same, by looking at every pair."""
    seen, step = None, max(TILE // max(call.batch * call.heads * call.keys, 1), 2)
    for first in range(0, call.queries, step):
        rows = range(first, min(first + step, call.queries))
        found = allowed(call.pairs(torch.arange(rows.start, rows.stop, device=call.device)))
        if found is None:
            return None
        here = found.any(-2)
        seen = here if seen is None else seen | here
        if found.shape[-2] < len(rows):  # the same for every query
            break
    return seen


def lower(call: Call, query: Tensor, key: Side, value: Tensor) -> Lowered:
    """Lower both sides once, for all rows.

    Keys that no query sees are emptied before, so that nothing they hold reaches a gradient of the score's parameters.
    """
    theirs, value = formula.exact_keys(call, key), call.spread(value).to(call.exact)
    seen = visible(call)
    if seen is not None:
        theirs, value = formula.without_hidden(seen, theirs, value)
    if not call.lowered:
        theirs = lower_key(call.score, theirs.features, call.heads, call.score.origin(theirs.features, seen))
    return Lowered(call.score.lower_query(query.to(call.exact), theirs.origin), theirs, value)


def some(side: Side, tokens: Tensor | slice) -> Side:
    """Some queries or keys of a side."""
    return Side(side.features[:, :, tokens], None if side.bias is None else side.bias[:, :, tokens], side.origin)
