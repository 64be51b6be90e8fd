"""Bandwidths: a rule of thumb, and what leaving one out says, with gradients.

The bandwidth h is judged by CV(h) = Σᵢ (yᵢ − m₋ᵢ(xᵢ))² / n, m₋ᵢ being the regression on all data but the i-th. Härdle and Marron 1985,
"Optimal Bandwidth Selection in Nonparametric Regression Function Estimation".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attent.regression.kernels import Kernel
from attent.regression.smoother import Smoother, estimate

# How far from the rule of thumb a bandwidth is looked for, as natural logarithms; so wide, a feature is as good as left out.
NARROWEST, WIDEST = -7.0, 12.0
# Multiples of the rule of thumb that are tried first, and how many of what was tried are followed downhill.
TRIED = tuple(2.0**power for power in (-4, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3))
STARTS = 3
# Pairs that one look at all data may take; with more data fewer points, but so many at least, are left out.
PAIRS, LEAST = 2 * 10**7, 200


class Learnt(NamedTuple):
    """What leaving one out found."""

    bandwidth: np.ndarray  # (D,)
    score: float  # CV, a mean over outputs in the square of their unit


def rule_of_thumb(x: np.ndarray) -> np.ndarray:
    """1.06 σ_d n^(−1/(4 + D)) for data (n, D), 1 for a feature that is constant.

    The normal reference rule: Silverman 1986, "Density Estimation for Statistics and Data Analysis", §3.4.2.
    """
    # a mean rounds, so that the spread about it of what is constant may be more than none
    return np.where(np.ptp(x, 0) > 0, 1.06 * x.std(0) * len(x) ** (-1.0 / (4 + x.shape[1])), 1.0)


class LeaveOneOut:
    """CV(h) and its gradient, in float64, some neighbours at a time.

    A point that sees no other, as happens with kernels that end, is answered by the mean of all others.

    Args:
        x: (n, D), n ≥ 2.
        y: (n, outputs).
        kernel: whose bandwidth is judged.
        points: the indices of the points that are left out, each in its turn.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, kernel: Kernel, points: np.ndarray) -> None:
        self.x, self.y = (torch.from_numpy(np.ascontiguousarray(data, dtype=np.float64)) for data in (x - x.mean(0), y))
        self.kernel, self.points = kernel, torch.from_numpy(points)
        # outputs count alike, whatever their units
        spread = self.y.var(0, correction=0)
        self._weight = 1.0 / torch.where(spread > 0, spread, 1.0)
        self._others = (self.y.sum(0) - self.y) / (len(x) - 1)

    def __call__(self, logarithm: np.ndarray) -> tuple[float, np.ndarray]:
        """CV of outputs in units of their variance at bandwidths exp(logarithm), (D,), and its gradient."""
        log = torch.from_numpy(np.asarray(logarithm, dtype=np.float64)).requires_grad_()
        total = 0.0
        for error in self._errors(log):
            loss = (error.square() * self._weight).mean(1).sum() / len(self.points)
            if loss.requires_grad:
                loss.backward()
            total += float(loss.detach())
        return total, np.zeros(len(logarithm)) if log.grad is None else log.grad.numpy().copy()

    def score(self, bandwidth: np.ndarray) -> float:
        """CV(h) in the square of the outputs' unit, a mean over outputs."""
        with torch.no_grad():
            errors = self._errors(torch.from_numpy(np.log(bandwidth)))
            return float(sum(error.square().mean(1).sum() for error in errors)) / len(self.points)

    def _errors(self, log: Tensor) -> Iterator[Tensor]:
        """yᵢ − m₋ᵢ(xᵢ) of some points after others, (m, outputs); each with a graph of its own."""
        with torch.no_grad():
            units = self.x * (-log).exp()
            smoother = Smoother(units, self.y, self.kernel)
            runs = list(smoother.runs(units[self.points]))
        for run, places in runs:
            rows, keys = self.points[run], smoother.cells.order[places]
            # where each point stands among the keys, -1 where it was passed by
            where = torch.full((len(self.x),), -1)
            where[keys] = torch.arange(len(keys))
            scale = (-log).exp()
            found = estimate(self.kernel, self.x[rows] * scale, self.x[keys] * scale, self.y[keys], where[rows])
            yield self.y[rows] - torch.where(found.seen[:, None], found.mean, self._others[rows])


def learn(x: np.ndarray, y: np.ndarray, kernel: Kernel, random: np.random.RandomState, points: int | None = None) -> Learnt:
    """The bandwidths, one per feature, of the least CV that is found.

    Multiples of the rule of thumb, of all features and then of each, are tried, and the best followed downhill
    (L-BFGS-B, Byrd et al. 1995).

    Args:
        x: (n, D), n ≥ 1.
        y: (n, outputs).
        kernel: whose bandwidths.
        random: chooses the points that are left out, where these are not all.
        points: how many are left out; as many as `PAIRS` allows, if not given.
    """
    from scipy.optimize import minimize

    rule = rule_of_thumb(x)
    count = min(len(x), max(PAIRS // len(x), LEAST) if points is None else points)
    if len(x) < 2:
        return Learnt(rule, float("nan"))
    chosen = np.arange(len(x)) if count == len(x) else np.sort(random.choice(len(x), count, replace=False))
    loss = LeaveOneOut(x, y, kernel, chosen)
    start = np.log(rule)
    tried = [(loss(start + np.log(factor))[0], start + np.log(factor)) for factor in TRIED]
    tried.append(_each(loss, min(tried, key=lambda found: found[0])))
    ends = [*sorted(tried, key=lambda found: found[0])[:STARTS], (loss(start)[0], start)]
    bounds = [(at + NARROWEST, at + WIDEST) for at in start]
    best = min(ends, key=lambda found: found[0])
    for _, at in ends:
        found = minimize(loss, at, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 100, "ftol": 1e-11, "gtol": 1e-8})
        best = min(best, (float(found.fun), found.x), key=lambda found: found[0])
    bandwidth = np.exp(best[1])
    return Learnt(bandwidth, loss.score(bandwidth))


def _each(loss: LeaveOneOut, start: tuple[float, np.ndarray]) -> tuple[float, np.ndarray]:
    """The best found by changing one feature's bandwidth after the other."""
    best = start
    for feature in range(len(start[1]) if len(start[1]) > 1 else 0):
        for factor in (*TRIED, 32.0, 1024.0):
            at = best[1].copy()
            at[feature] = start[1][feature] + np.log(factor)
            best = min(best, (loss(at)[0], at), key=lambda found: found[0])
    return best
