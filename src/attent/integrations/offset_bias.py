"""A score_mod that is a soft cap and a term by head and offset, as attend's own parts.

Soft cap, bias by offset and key ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from attent.attention.base import Pairs, Position
from attent.integrations.block_mask import KeyRanges
from attent.integrations.score_mod_trace import trace
from attent.ops.eligibility import can_run_custom_function
from attent.ops.pair_functions import for_all_offsets


class OffsetBias(Position):
    """A bias that is a function of head and offset, the key's index less the query's.

    Args:
        bias: of the offsets 1 − Tq to Tk − 1 in order, (H|1, Tq + Tk − 1).
        queries: Tq.
    """

    biases: ClassVar[bool] = True

    def __init__(self, bias: Tensor, queries: int) -> None:
        super().__init__()
        self.vector, self.first = bias, 1 - queries

    def bias_by_offset(self, offsets: Tensor) -> Tensor:
        """Return the bias of these offsets, (H|1, n)."""
        return self.vector[:, offsets - self.first]

    def bias(self, pairs: Pairs) -> Tensor:
        """Return the bias of these pairs, (1, H, Tq, Tk)."""
        query, key = pairs.broadcast_positions()
        return self.bias_by_offset((key - query)[0, 0]).expand(pairs.heads, -1, -1)[None]


class Parts(NamedTuple):
    """A score_mod as arguments of attend."""

    soft_cap: float | None
    position: OffsetBias | None
    mask: KeyRanges | None


def parts_of(score_mod: Callable[..., Tensor], heads: int, queries: int, keys: int, dtype: torch.dtype) -> Parts | None:
    """Return the parts that a score_mod on the CPU is made of; None unless it certainly is.

    Args:
        score_mod: a function of the score and the indices in the batch, of the head, the query and the key.
        heads: H.
        queries: Tq.
        keys: Tk.
        dtype: of the scores.
    """
    if not (heads and queries and keys) or not can_run_custom_function():
        return None
    score = trace(score_mod, dtype)
    if score is None:
        return None
    # of a score of zero the term is left
    offsets = torch.arange(1 - queries, keys)
    bias = for_all_offsets(score_mod, torch.arange(heads), offsets, torch.zeros((), dtype=dtype)).to(dtype)
    is_hidden = bias.detach() == -torch.inf
    if not bool((bias.detach().isfinite() | is_hidden).all()):
        return None
    mask = None
    if bool(is_hidden.any()):
        mask = _key_ranges(~is_hidden, offsets, queries, keys)
        if mask is None:
            return None
        bias = bias.masked_fill(is_hidden, 0.0)
    has_bias = bias.requires_grad or bool(bias.any())
    return Parts(score.soft_cap, OffsetBias(bias, queries) if has_bias else None, mask)


def _key_ranges(is_visible: Tensor, offsets: Tensor, queries: int, keys: int) -> KeyRanges | None:
    """Return the keys of visible offsets, (H|1, offsets), as a range for each query; None if they have gaps."""
    first = torch.where(is_visible, offsets, keys).amin(-1, keepdim=True)
    end = torch.where(is_visible, offsets + 1, 1 - queries).amax(-1, keepdim=True)
    if not torch.equal(is_visible.sum(-1, keepdim=True), (end - first).clamp(min=0)):
        return None
    query = torch.arange(queries)
    return KeyRanges(*((query + bound).clamp(0, keys)[None] for bound in (first, end)))
