"""Which keys any query of a call sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attent.attention.base import Either, Mask, Pairs

# A `Call`, which is made with the help of this.
Call = Any
# Pairs that are looked at together.
PAIRS = 2**20


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
    seen, step = None, max(PAIRS // max(call.batch * call.heads * call.keys, 1), 2)
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
