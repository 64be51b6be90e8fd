"""Bandwidths: a rule of thumb, and leave-one-out cross-validation with gradients.

The score of bandwidths h is CV(h) = Σᵢ (yᵢ − m₋ᵢ(xᵢ))² / n, m₋ᵢ being the regression on all data but the i-th. Härdle
and Marron 1985, "Optimal Bandwidth Selection in Nonparametric Regression Function Estimation".
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attent.nonparametric.kernels import Kernel
from attent.nonparametric.smoother import Smoother, smooth

# Bounds of the search, as natural logarithms of multiples of the rule of thumb; at the upper one a feature is as good
# as left out.
LOG_MIN, LOG_MAX = -7.0, 12.0
# Multiples of the rule of thumb that are tried first, and the number of the best from which the search descends.
FACTORS = tuple(2.0**power for power in (-4, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3))
STARTS = 3
# Pairs that one evaluation may take; with more data, fewer points are left out, but at least so many.
PAIRS, MIN_POINTS = 2 * 10**7, 200


class BandwidthTrial(NamedTuple):
    """Log-bandwidths and their loss."""

    loss: float
    log: np.ndarray  # (D,)


def rule_of_thumb(x: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return 1.06 σ_d n^(−1/(4 + D)) for data (n, D), 1 for a constant feature.

    The normal reference rule: Silverman 1986, "Density Estimation for Statistics and Data Analysis", §3.4.2. With
    weights (n,), σ is weighted, and n is Kish's effective number (Σw)²/Σw² (1965, "Survey Sampling"), as in SciPy's
    `gaussian_kde`.
    """
    deviation, count = x.std(0), float(len(x))
    if weight is not None:
        deviation = np.sqrt(np.average((x - np.average(x, 0, weight)) ** 2, 0, weight))
        count = weight.sum() ** 2 / np.square(weight).sum()
    # the mean of a constant rounds, so that its standard deviation may exceed zero
    return np.where(np.ptp(x, 0) > 0, 1.06 * deviation * count ** (-1.0 / (4 + x.shape[1])), 1.0)


class LeaveOneOut:
    """CV(h) and its gradient, in float64, for runs of neighbors.

    The estimate of a point without neighbors, as with kernels of compact support, is the mean of all other points.

    Args:
        x: (n, D), n ≥ 2.
        y: (n, outputs).
        kernel: the kernel.
        points: the indices of the points to leave out.
        weight: (n,) > 0 of each point, as a key and in the mean of the errors; 1 if not given.
    """

    def __init__(
        self, x: np.ndarray, y: np.ndarray, kernel: Kernel, points: np.ndarray, weight: np.ndarray | None = None
    ) -> None:
        self.x, self.y = (torch.from_numpy(np.ascontiguousarray(data, dtype=np.float64)) for data in (x - x.mean(0), y))
        self.kernel, self.points = kernel, torch.from_numpy(points)
        self.weight = None if weight is None else torch.from_numpy(weight)
        weights = torch.ones(len(x), 1, dtype=torch.float64) if self.weight is None else self.weight[:, None]
        total = weights.sum()
        mean = (weights * self.y).sum(0) / total
        # outputs count the same, whatever their units
        variance = (weights * (self.y - mean).square()).sum(0) / total
        self._output_weight = 1.0 / torch.where(variance > 0, variance, 1.0)
        self._means = ((weights * self.y).sum(0) - weights * self.y) / (total - weights)
        # of each error, 1 in all
        self._share = weights[self.points, 0] / weights[self.points].sum()

    def __call__(self, logarithm: np.ndarray) -> tuple[float, np.ndarray]:
        """Return CV, with outputs in units of their variance, at bandwidths exp(logarithm), (D,), and its gradient."""
        log = torch.from_numpy(np.asarray(logarithm, dtype=np.float64)).requires_grad_()
        total = 0.0
        for error, share in self._errors(log):
            loss = (error.square() * self._output_weight).mean(1) @ share
            if loss.requires_grad:
                loss.backward()
            total += float(loss.detach())
        return total, np.zeros(len(logarithm)) if log.grad is None else log.grad.numpy().copy()

    def score(self, bandwidth: np.ndarray) -> float:
        """Return CV(h) in the square of the outputs' unit, a mean over outputs."""
        with torch.no_grad():
            errors = self._errors(torch.from_numpy(np.log(bandwidth)))
            return float(sum(error.square().mean(1) @ share for error, share in errors))

    def _errors(self, log: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield yᵢ − m₋ᵢ(xᵢ) for runs of points, (m, outputs), and the share of each point, (m,).

        Each has its own graph.
        """
        with torch.no_grad():
            scaled = self.x * (-log).exp()
            smoother = Smoother(scaled, self.y, self.kernel, self.weight)
            runs = list(smoother.runs(scaled[self.points]))
        for run, positions in runs:
            rows, keys = self.points[run], smoother.boxes.order[positions]
            # the index of each point among the keys, -1 where it was skipped
            key_index = torch.full((len(self.x),), -1)
            key_index[keys] = torch.arange(len(keys))
            scale = (-log).exp()
            weight = None if self.weight is None else self.weight[keys]
            estimate = smooth(
                self.kernel, self.x[rows] * scale, self.x[keys] * scale, self.y[keys], key_index[rows], weight
            )
            yield (
                self.y[rows] - torch.where(estimate.has_keys[:, None], estimate.mean, self._means[rows]),
                self._share[run],
            )


def learn_bandwidth(
    x: np.ndarray,
    y: np.ndarray,
    kernel: Kernel,
    random: np.random.RandomState,
    points: int | None = None,
    weight: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Return the bandwidths of the least CV, one per feature, (D,), and this CV.

    It is a mean over outputs in the square of their unit. Tries multiples of the rule of thumb, for all features
    together and for one after the other, and descends from the best (L-BFGS-B, Byrd et al. 1995).

    Args:
        x: (n, D), n ≥ 1.
        y: (n, outputs).
        kernel: the kernel.
        random: chooses the points to leave out, unless all are.
        points: the number of points to leave out; as many as `PAIRS` allows, if not given.
        weight: (n,) > 0 of each point; 1 if not given.
    """
    from scipy.optimize import minimize

    rule = rule_of_thumb(x, weight)
    count = min(len(x), max(PAIRS // len(x), MIN_POINTS) if points is None else points)
    if len(x) < 2:
        return rule, float("nan")
    chosen = np.arange(len(x)) if count == len(x) else np.sort(random.choice(len(x), count, replace=False))
    loss = LeaveOneOut(x, y, kernel, chosen, weight)
    start = np.log(rule)
    tried = [_evaluate(loss, start + np.log(factor)) for factor in FACTORS]
    tried.append(_vary_features(loss, min(tried, key=itemgetter(0))))
    starts = [*sorted(tried, key=itemgetter(0))[:STARTS], _evaluate(loss, start)]
    bounds = [(log + LOG_MIN, log + LOG_MAX) for log in start]
    best = min(starts, key=itemgetter(0))
    for _, log in starts:
        result = minimize(
            loss, log, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 100, "ftol": 1e-11, "gtol": 1e-8}
        )
        best = min(best, BandwidthTrial(float(result.fun), result.x), key=itemgetter(0))
    bandwidth = np.exp(best.log)
    return bandwidth, loss.score(bandwidth)


def _evaluate(loss: LeaveOneOut, log: np.ndarray) -> BandwidthTrial:
    return BandwidthTrial(loss(log)[0], log)


def _vary_features(loss: LeaveOneOut, start: BandwidthTrial) -> BandwidthTrial:
    """Return the best trial after changing the bandwidth of one feature after the other."""
    best = start
    for feature in range(len(start.log) if len(start.log) > 1 else 0):
        for factor in (*FACTORS, 32.0, 1024.0):
            log = best.log.copy()
            log[feature] = start.log[feature] + np.log(factor)
            best = min(best, _evaluate(loss, log), key=itemgetter(0))
    return best
