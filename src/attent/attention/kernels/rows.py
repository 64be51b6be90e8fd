"""Some rows at a time: what the tiled implementation and the maps share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from attent.attention import formula
from attent.attention.call import Call, lower_key
from attent.attention.parts import Side

# numbers that a tile may hold at a time: 16 MiB of float32, which a CPU's caches nearly hold
TILE = 2**22


class Lowered(NamedTuple):
    """Both sides lowered, every head spread, in exact type, with the keys that no query sees emptied."""

    query: Side
    key: Side
    value: Tensor


def per_row(call: Call) -> int:
    """How many numbers one row of scores takes while it is computed, over all sequences and heads."""
    return max(call.batch * call.heads * call.keys * call.score.per_pair(call.query_width), 1)


def tiles(call: Call) -> list[range]:
    """The rows, in runs that stay within a tile's size."""
    step = max(TILE // per_row(call), 1)
    return [range(first, min(first + step, call.queries)) for first in range(0, call.queries, step)]


def visible(call: Call) -> Tensor | None:
    """Which keys any query sees, (B|1, H|1, Tk); None where the mask hides nothing."""
    seen, step = None, max(TILE // max(call.batch * call.heads * call.keys, 1), 2)
    for first in range(0, call.queries, step):
        rows = range(first, min(first + step, call.queries))
        allowed = call.allowed(call.pairs(torch.arange(rows.start, rows.stop, device=call.device)))
        if allowed is None:
            return None
        here = allowed.any(-2)
        seen = here if seen is None else seen | here
        if allowed.shape[-2] < len(rows):  # the same for every query
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


def of_query(query: Side, rows: Tensor | slice) -> Side:
    """Some rows of a query side."""
    return Side(query.features[:, :, rows], None if query.bias is None else query.bias[:, :, rows], query.origin)
