"""The map of a call that was not ours, prepared when it is first looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attent.attention.base import Mask, Normalizer
from attent.attention.call import Prepared, prepare
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.versions import Versions
from attent.attention.masks.causal import Causal
from attent.attention.masks.table import Table
from attent.attention.normalizers.softmax import Softmax
from attent.attention.scores.scaled_dot import ScaledDot


class Recorded(AttentionMap):
    """A map that costs nothing until it is looked at.

    Args:
        prepared: makes the call and its tensors of what was kept.
        kept: what it makes them of.
    """

    # what LazyMatrix holds, but for that which is made later
    _detached, _lowered = True, None

    def __init__(self, prepared: Callable[..., Prepared], *kept: object) -> None:
        self._prepared = prepared, kept

    def __getattr__(self, name: str) -> Any:
        """The call, its queries and its keys, made when the first of them is asked for."""
        if name not in ("call", "query", "key", "_versions"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        prepared, kept = self._prepared
        self.call, self.query, self.key, _ = prepared(*kept)
        self._versions = Versions(self.call, self.query, self.key)
        # what was kept is in these three now
        del self._prepared
        return getattr(self, name)


@dataclass(frozen=True)
class BareSoftmax(Normalizer):
    """The softmax without our rule for a query that may see nothing: 0/0, which is NaN."""

    def normalize(self, scores: Tensor) -> Tensor:
        """The softmax of each row of scores (…, Tk)."""
        return scores.softmax(-1)

    def __call__(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        weights = super().__call__(scores, allowed)
        return weights if allowed is None else weights.masked_fill(~allowed.any(-1, keepdim=True), torch.nan)


def scaled_dot_product(
    query: Tensor,
    key: Tensor,
    mask: Tensor | Mask | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    grouped: bool = False,
    bare: bool = False,
) -> Prepared:
    """PyTorch's attention as a call of ours.

    Args:
        query: (…, H, Tq, D), up to two axes in front as attend has them; more are taken together as the batch.
        key: (…, G, Tk, D).
        mask: a mask of ours, or a tensor that broadcasts to (…, H, Tq, Tk): boolean, True where a query may attend, or a float term.
        causal: whether query i sees the keys up to i, counted from the first key.
        scale: the factor on qᵀk; 1/√D if not given.
        grouped: whether query heads share key heads.
        bare: whether the weights of a query that may see nothing are NaN; zeros if not.
    """
    own = 3 if grouped else 2
    front = torch.broadcast_shapes(query.shape[:-own], key.shape[:-own])
    query, key = (side.expand(*front, *side.shape[-own:]) for side in (query, key))
    axes = len(front) + own
    if isinstance(mask, Tensor):
        mask = _with_axes(mask, query)
    if axes > 4:
        query, key = query.flatten(0, -4), key.flatten(0, -4)
    added = mask if isinstance(mask, Tensor) and mask.dtype != torch.bool else None
    chosen = None if added is not None else Table(mask) if isinstance(mask, Tensor) else mask
    return prepare(
        query,
        key,
        key[..., :0],
        score=ScaledDot(scale),
        normalizer=BareSoftmax() if bare else Softmax(),
        mask=chosen if not causal else Causal() if chosen is None else chosen & Causal(),
        bias=added,
        # PyTorch's causal mask counts from the first key; elsewhere the last query stands on the last key, as with a cache
        query_start=0 if causal else None,
    )


def _with_axes(mask: Tensor, query: Tensor) -> Tensor:
    """A mask that broadcasts to (…, Tq, Tk) beside these queries, with two axes or four, as ours have."""
    if query.dim() > 4:
        return mask.expand(*query.shape[:-2], *mask.shape[-2:]).flatten(0, -4)
    if query.dim() == 3 and mask.dim() == 3:
        return mask[:, None]
    return mask if mask.dim() == 2 else mask[(None,) * (4 - mask.dim())]
