"""Sums of Gaussians of one feature, by their series about the middles of small cells, so that a query asks cells instead of keys.

Greengard and Strain 1991, "The Fast Gauss Transform", SIAM J. Sci. Stat. Comput. 12(1). Of a key x = c + d in a cell about c and a query
q = c + u, both in bandwidths,

    exp(−(q − x)²/2) = exp(−u²/2) · Σₙ uⁿ · dⁿ exp(−d²/2) / n!,

so that all a cell has to say of its keys are the sums over them of y · dⁿ exp(−d²/2) / n!. It is a series of Taylor's, not of Hermite's
polynomials as theirs is, which cells as small as these do not need.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Half a cell, and how far a query looks, in bandwidths; terms of the series, the first left out being REACH·RADIUS^n/n! = 8e-19 of it.
RADIUS, REACH, TERMS = 0.25, 12.0, 30
# Queries at a time, so that what they gather stays in a core's cache.
QUERIES = 2048


class Expansion:
    """Keys and values, to be asked for the sums of their Gaussians at any queries; all in float64.

    Args:
        key: (n,), n ≥ 1, in bandwidths.
        value: (n, outputs).

    Attributes:
        pays: whether keys share cells, so that asking these is less work than asking keys, and no more memory; else it cannot be asked.
    """

    def __init__(self, key: Tensor, value: Tensor) -> None:
        self._start = key.min()
        # cells that hold a key, in ascending order, and which of them each key is in
        self._cells, cell = torch.unique(self._numbers(key), return_inverse=True)
        self.pays = TERMS * len(self._cells) <= len(key)
        if not self.pays:
            return
        inside = key - self._middles(self._cells)[cell]  # (n,)
        term, self._sums = torch.exp(-0.5 * inside.square()), key.new_zeros(TERMS, len(self._cells), value.shape[1])
        for n in range(TERMS):
            self._sums[n].index_add_(0, cell, value * term[:, None])
            term = term * inside / (n + 1)
        # as far from the nearest key as this, what a query sees of it is still far more than all that lies beyond its reach
        rest = 2.0 * math.log(16.0 * len(key) / torch.finfo(torch.float64).eps)
        self._far = math.sqrt(max((REACH - 2.0 * RADIUS) ** 2 - rest, 0.0)) - 2.0 * RADIUS

    def __call__(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """The sums Σᵢ exp(−(q − xᵢ)²/2) yᵢ at queries (m,), (m, outputs), and which of them are right, (m,): those near a key."""
        found, near = zip(*map(self._some, query.split(QUERIES)), strict=True)
        return torch.cat(found), torch.cat(near)

    def _some(self, query: Tensor) -> tuple[Tensor, Tensor]:
        found = self._sums.new_zeros(len(query), self._sums.shape[2])
        nearest = torch.full_like(query, math.inf)
        home, across = self._numbers(query), math.ceil(REACH / (2.0 * RADIUS))
        for offset in range(-across, across + 1):
            place = torch.searchsorted(self._cells, home + offset).clamp(max=len(self._cells) - 1)
            rows = (self._cells[place] == home + offset).nonzero()[:, 0]
            if not len(rows):
                continue
            place, u = place[rows], query[rows] - self._middles(home[rows] + offset)
            nearest[rows] = torch.minimum(nearest[rows], u.abs())
            total = self._sums[-1, place]  # (rows, outputs)
            for n in range(TERMS - 2, -1, -1):
                total = torch.addcmul(self._sums[n, place], total, u[:, None])
            found.index_add_(0, rows, torch.exp(-0.5 * u.square())[:, None] * total)
        return found, nearest <= self._far

    def _numbers(self, points: Tensor) -> Tensor:
        # those beyond all cells keep a number that whole numbers can say
        return ((points - self._start) / (2.0 * RADIUS)).floor().clamp(-1e15, 1e15).long()

    def _middles(self, cells: Tensor) -> Tensor:
        return self._start + (cells.to(self._start.dtype) + 0.5) * (2.0 * RADIUS)
