"""The estimate itself: m(q) = Σᵢ K((q − xᵢ)/h) yᵢ / Σᵢ K((q − xᵢ)/h), by attention, some queries at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from attent.attention.attend import attend
from attent.attention.masks.excluded import Excluded
from attent.regression.cells import cells, near
from attent.regression.expansion import Expansion
from attent.regression.kernels import KERNELS, Kernel

# Queries that look at the same keys, and how wide they may lie in bandwidths if they are not few; keys that are looked at or passed by
# together. Queries far apart share few of the keys that matter to one, and their least weights are too small to be computed quickly.
QUERIES, WIDEST, FEW, KEYS = 128, 4.0, 32, 64
# A score loses digits with the square of how far its query is from the middle of its run: from here on it is computed in float64, and no
# run is wider than this.
FAR, LIMIT = 12.0, 500.0
# Pairs at a time, so that they stay in a core's cache, and rows at least, which a product takes together.
PAIRS, ROWS = 2**19, 8
# So many pairs are computed at once in float64, whose digits suffice within the limit.
SMALL = 2**18
# The share of its weights that a query may miss, in units of what rounding takes.
MISSED = 1 / 16


class Estimate(NamedTuple):
    """What the regression says at some queries."""

    mean: Tensor  # (m, outputs)
    seen: Tensor  # (m,) whether any key has a weight


class Smoother:
    """Keys, values and a kernel, to be asked at any queries. Keys that could not be told from rounding are passed by.

    Args:
        key: (n, D), n ≥ 1, in bandwidths, in float64.
        value: (n, outputs), in the type that the regression is to be computed in.
        kernel: whose weights.
    """

    def __init__(self, key: Tensor, value: Tensor, kernel: Kernel) -> None:
        self.kernel = kernel
        self.cells = cells(key, KEYS)
        # neighbours side by side
        self._key, self._value = key[self.cells.order], value[self.cells.order]

    def __call__(self, query: Tensor) -> Estimate:
        """The estimate at queries (m, D), in bandwidths, in float64."""
        mean = self._value.new_zeros(len(query), self._value.shape[1])
        seen = torch.zeros(len(query), dtype=torch.bool)
        if self._expands(query):
            sums, near = self._expansion(query[:, 0])
            mean[near], seen[near] = (sums[near, :-1] / sums[near, -1:]).to(mean.dtype), True
        left = (~seen).nonzero()[:, 0]
        for some, places in self.runs(query[left]):
            rows, key, value = left[some], self._key.index_select(0, places), self._value.index_select(0, places)
            wide = float((query[rows].amax(0) - query[rows].amin(0)).amax()) > FAR
            found = estimate(self.kernel, query[rows], key, value.double() if wide else value)
            mean[rows], seen[rows] = found.mean.to(mean.dtype), found.seen
        return Estimate(mean, seen)

    @cached_property
    def _expansion(self) -> Expansion:
        value = self._value.double()
        # a further value, 1 everywhere, whose sums the others' are divided by
        return Expansion(self._key[:, 0], torch.cat((value, torch.ones_like(value[:, :1])), 1))

    def _expands(self, query: Tensor) -> bool:
        """Whether there is a series for these, and so many pairs that it pays."""
        one = self.kernel is KERNELS["gaussian"] and self._key.shape[1] == 1
        return one and len(query) * len(self._key) > SMALL and self._expansion.pays

    def runs(self, query: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The queries (m, D) in runs of neighbours: their indices, and where in `cells.order` the keys stand that matter to them."""
        if not len(query):
            return
        small = len(query) * len(self._key) <= SMALL and float((query.amax(0) - query.amin(0)).amax()) <= LIMIT
        if small and self._value.dtype == torch.float64:
            yield torch.arange(len(query)), torch.arange(len(self._key))
            return
        ours = cells(query, QUERIES, widest=WIDEST, least=FEW, limit=LIMIT)
        precision = MISSED * torch.finfo(self._value.dtype).eps
        for run, low, high in zip(ours.order.split(ours.starts.diff().tolist()), ours.low, ours.high, strict=True):
            yield run, near(self.kernel, low, high, self.cells, precision)


def estimate(kernel: Kernel, query: Tensor, key: Tensor, value: Tensor, left_out: Tensor | None = None) -> Estimate:
    """The estimate at a few queries that lie near each other.

    Args:
        kernel: whose weights.
        query: (m, D), in bandwidths, in float64.
        key: (n, D), likewise.
        value: (n, outputs), in the type that the estimate is computed in.
        left_out: (m,) the key that each query is not to look at, negative where it may look at all.
    """
    # seen from where the queries are, distances keep their digits in any type
    origin = query.detach().mean(0)
    query, key, score, mask = kernel.quick(*((points - origin).to(value.dtype) for points in (query, key)))
    if left_out is not None:
        others = Excluded(left_out[:, None])
        mask = others if mask is None else mask & others
    # a further value, 1 everywhere, tells whether there are weights
    # column by column in memory, for products with a few columns are several times as fast so, and add up with less rounding
    value = torch.cat((value.mT, value.new_ones(1, len(value)))).mT
    step = max(PAIRS // max(len(key), 1), ROWS) if mask is None else max(len(query), 1)
    parts = [attend(some, key, value, score=score, mask=mask, implementation="tiled") for some in query.split(step)]
    context = torch.cat(parts)
    weights = context[:, -1:]
    # they sum to 1 but for rounding, which the mean has as well, so that most of it cancels
    return Estimate(context[:, :-1] / weights.clamp(min=0.5), weights[:, 0].detach() > 0.5)
