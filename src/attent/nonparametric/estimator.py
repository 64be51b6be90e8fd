"""Kernel regression as a scikit-learn estimator, and the choice of its bandwidths.

Bandwidths are found by leave-one-out cross-validation with gradients, which starts from a rule of thumb. The score of
bandwidths h is CV(h) = Σᵢ (yᵢ − m₋ᵢ(xᵢ))² / n, where m₋ᵢ is the regression on all samples except the i-th. Härdle and
Marron 1985, "Optimal Bandwidth Selection in Nonparametric Regression Function Estimation".
"""

from __future__ import annotations

import warnings
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attent.attention.arguments import prepare
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, check_known, needs
from attent.nonparametric.kernels import Kernel, get_kernel, smooth

# Bounds of the search, as natural logarithms of multiples of the rule of thumb; at the upper bound, a feature has
# practically no effect.
LOG_MIN, LOG_MAX = -7.0, 12.0
# Multiples of the rule of thumb that are tried first, and the number of the best ones from which the search descends.
FACTORS = tuple(2.0**power for power in (-4, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3))
STARTS = 3
# The maximum number of pairs per evaluation; with more data, fewer points are left out, but at least MIN_POINTS.
PAIRS, MIN_POINTS = 4 * 10**6, 200


class BandwidthTrial(NamedTuple):
    """Log-bandwidths and their loss."""

    loss: float
    log: np.ndarray  # (D,)


def rule_of_thumb(x: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the bandwidths 1.06 σ_d n^(−1/(4 + D)), (D,), for data (n, D); 1 for a constant feature.

    The normal reference rule: Silverman 1986, "Density Estimation for Statistics and Data Analysis", §3.4.2. With
    weights (n,), σ is weighted, and n is Kish's effective number (Σw)²/Σw² (1965, "Survey Sampling"), as in SciPy's
    `gaussian_kde`.
    """
    deviation, count = x.std(0), float(len(x))
    if weight is not None:
        deviation = np.sqrt(np.average((x - np.average(x, 0, weight)) ** 2, 0, weight))
        count = weight.sum() ** 2 / np.square(weight).sum()
    # the mean of a constant is rounded, so its standard deviation can exceed zero
    return np.where(np.ptp(x, 0) > 0, 1.06 * deviation * count ** (-1.0 / (4 + x.shape[1])), 1.0)


class LeaveOneOut:
    """Computes CV(h) and its gradient in float64.

    A point without neighbors, which exists only with kernels of compact support, is estimated by the mean of all other
    points.

    Args:
        x: (n, D), n ≥ 2.
        y: (n, outputs).
        kernel: the kernel.
        points: the indices of the points to leave out.
        weight: (n,) the weight > 0 of each point, both as a key and in the mean of the errors; 1 if not given.
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
        # all outputs count equally, whatever their units
        variance = (weights * (self.y - mean).square()).sum(0) / total
        self._output_weight = 1.0 / torch.where(variance > 0, variance, 1.0)
        self._means = ((weights * self.y).sum(0) - weights * self.y) / (total - weights)
        # the share of each error; the shares sum to 1
        self._share = weights[self.points, 0] / weights[self.points].sum()

    def __call__(self, logarithm: np.ndarray) -> tuple[float, np.ndarray]:
        """Return CV at bandwidths exp(logarithm), (D,), and its gradient; outputs are scaled to variance 1."""
        log = torch.from_numpy(np.asarray(logarithm, dtype=np.float64)).requires_grad_()
        loss = (self._errors(log).square() * self._output_weight).mean(1) @ self._share
        if not loss.requires_grad:
            return float(loss), np.zeros(len(logarithm))
        (gradient,) = torch.autograd.grad(loss, log)
        return float(loss.detach()), gradient.numpy().copy()

    def score(self, bandwidth: np.ndarray) -> float:
        """Return CV(h), averaged over outputs, in squared output units."""
        with torch.no_grad():
            return float(self._errors(torch.from_numpy(np.log(bandwidth))).square().mean(1) @ self._share)

    def _errors(self, log: Tensor) -> Tensor:
        """Return the errors yᵢ − m₋ᵢ(xᵢ) of the points, (points, outputs)."""
        scaled = self.x * (-log).exp()
        estimate = smooth(self.kernel, scaled[self.points], scaled, self.y, self.points, self.weight)
        return self.y[self.points] - torch.where(estimate.has_keys[:, None], estimate.mean, self._means[self.points])


def learn_bandwidth(
    x: np.ndarray,
    y: np.ndarray,
    kernel: Kernel,
    random: np.random.RandomState,
    weight: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Return the bandwidths with the lowest CV, one per feature, (D,), and that CV.

    The CV is averaged over outputs, in squared output units. The search tries multiples of the rule of thumb, for all
    features together and then for one feature at a time, and descends from the best (L-BFGS-B, Byrd et al. 1995).

    Args:
        x: (n, D), n ≥ 1.
        y: (n, outputs).
        kernel: the kernel.
        random: the generator that chooses the points to leave out, if these are not all points.
        weight: (n,) the weight > 0 of each point; 1 if not given.
    """
    from scipy.optimize import minimize

    rule = rule_of_thumb(x, weight)
    count = min(len(x), max(PAIRS // len(x), MIN_POINTS))
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
    """Return the best trial after varying the bandwidth of one feature at a time."""
    best = start
    for feature in range(len(start.log) if len(start.log) > 1 else 0):
        for factor in (*FACTORS, 32.0, 1024.0):
            log = best.log.copy()
            log[feature] = start.log[feature] + np.log(factor)
            best = min(best, _evaluate(loss, log), key=itemgetter(0))
    return best


with needs("AttentionRegressor needs scikit-learn", "regression"):
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data


def refuse_dates(X: Any) -> None:
    """Refuse an array or a DataFrame with dates or durations, whose numbers depend on their unit.

    Raises:
        ArgumentError: it has some.
    """
    if any(getattr(dtype, "kind", None) in ("m", "M") for dtype in getattr(X, "dtypes", [getattr(X, "dtype", None)])):
        raise ArgumentError(
            "features must be numbers, got dates or durations: convert them to days by "
            "(dates - numpy.datetime64(0, 'D')) / numpy.timedelta64(1, 'D')"
        )


class AttentionRegressor(RegressorMixin, BaseEstimator):
    """Kernel regression: m(q) = Σᵢ K((q − xᵢ)/h) yᵢ / Σᵢ K((q − xᵢ)/h), attention whose keys and values are the data.

    Nadaraya 1964, "On Estimating Regression"; Watson 1964, "Smooth Regression Analysis". Memory grows linearly
    with the numbers of queries and samples.

    Args:
        bandwidth: h > 0, in the units of the features: a number, one per feature, "loo" to learn one per feature by
            leave-one-out cross-validation, or "rule" for the normal reference rule 1.06 σ n^(−1/(4 + D)).
        kernel: "gaussian", "exponential", "logistic", or a kernel that is zero beyond one bandwidth: "uniform",
            "triangular", "epanechnikov", "biweight", "triweight", "tricube", "cosine"; all are products over features.
            Or your own `Kernel`.
        random_state: the seed or generator that draws the samples to leave out, if these are not all: with "loo", as
            many as make 4·10⁶ pairs per evaluation, but at least 200.

    Attributes:
        bandwidth_: (D,) the bandwidths.
        loo_score_: with "loo", the mean squared leave-one-out error, averaged over outputs.
        X_: (n, D) the keys, in float64.
        y_: (n,) or (n, outputs) the values, in float64.
        n_features_in_: D.

    Example:
        >>> model = attent.AttentionRegressor().fit(grades, salaries)
        >>> model.predict([[3.5]])
        >>> model.weights([[3.5]]).top(5)  # the keys that weigh most
    """

    def __init__(
        self,
        bandwidth: Any = "loo",
        *,
        kernel: str | Kernel = "gaussian",
        random_state: Any = None,
    ) -> None:
        self.bandwidth = bandwidth
        self.kernel = kernel
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> AttentionRegressor:
        """Store the data, and learn the bandwidths unless they are given.

        Args:
            X: (n, D) numbers.
            y: (n,) or (n, outputs) numbers.
            sample_weight: (n,) ≥ 0, multiplies the kernel weight of each sample: 2 is the same as giving the sample
                twice, 0 the same as omitting it. Leave-one-out still leaves out a whole sample, and weights its error
                by the sample's weight; "rule" uses (Σw)²/Σw² as n. Both depend only on the ratios of the weights.

        Raises:
            ArgumentError: an invalid setting, or dates.
        """
        kernel = get_kernel(self.kernel)
        refuse_dates(X)
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32), multi_output=True, y_numeric=True)
        self._type = X.dtype
        # copies: arrays shared with pandas and others can be read-only, and must not change later
        self.X_, self.y_ = X.astype(np.float64), np.array(y, dtype=np.float64, order="C")
        x, outputs, weight = self.X_, self.y_.reshape(len(self.y_), -1), None
        self._weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            weight = weight / weight.max()
            self._weight, counts = torch.from_numpy(weight), weight > 0
            x, outputs, weight = x[counts], outputs[counts], weight[counts]
        self._set_bandwidth(kernel, x, outputs, weight)
        self._center = x.mean(0)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the weighted mean of the values for each query: (m,) or (m, outputs).

        A query without a key within the bandwidth gets NaN, with a warning; this happens only with kernels of compact
        support. If all weights of a Gaussian would round to zero, the nearest keys are used.
        """
        queries = self._queries(X)
        values = torch.from_numpy(self.y_.reshape(len(self.y_), -1))
        mean, has_keys = smooth(get_kernel(self.kernel), queries, self._scale(self.X_), values, weight=self._weight)
        has_no_keys = ~has_keys
        if bool(has_no_keys.any()):
            warnings.warn(
                f"{int(has_no_keys.sum())} of {len(mean)} queries have no key within the bandwidth; predicting NaN",
                stacklevel=2,
            )
            mean[has_no_keys] = torch.nan
        return mean.numpy().astype(self._type).reshape(len(mean), *self.y_.shape[1:])

    def weights(self, X: Any) -> AttentionMap:
        """Return the weights of the training data (columns) for each query (rows), as a lazy matrix.

        Sample weights are included.

        Args:
            X: (m, D).
        """
        query, key, kernel = self._queries(X), self._scale(self.X_), get_kernel(self.kernel)
        bias = None if self._weight is None else self._weight.log()[None, None, None]
        options: dict[str, Any] = {"score": kernel.score, "mask": kernel.mask(query, key), "bias": bias}
        return AttentionMap.of(prepare(query, key, key[:, :1], **options))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _set_bandwidth(self, kernel: Kernel, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> None:
        bandwidth = self.bandwidth
        if isinstance(bandwidth, str):
            check_known("bandwidth", bandwidth, ("loo", "rule"))
            if bandwidth == "loo":
                random = check_random_state(self.random_state)
                self.bandwidth_, self.loo_score_ = learn_bandwidth(x, y, kernel, random, weight)
            else:
                self.bandwidth_ = rule_of_thumb(x, weight)
            return
        try:
            numbers = np.asarray(bandwidth, dtype=np.float64)
        except (TypeError, ValueError):
            numbers = np.array(np.nan)
        if not (numbers.shape in ((), (x.shape[1],)) and np.isfinite(numbers).all() and (numbers > 0).all()):
            raise ArgumentError(
                f'bandwidth must be "loo", "rule", a number > 0 or {x.shape[1]} of them, one per feature, got '
                f"{bandwidth!r}"
            )
        self.bandwidth_ = np.broadcast_to(numbers, x.shape[1:]).copy()

    def _queries(self, X: Any) -> torch.Tensor:
        check_is_fitted(self)
        refuse_dates(X)
        return self._scale(np.asarray(validate_data(self, X, dtype=(np.float64, np.float32), reset=False)))

    def _scale(self, X: np.ndarray) -> torch.Tensor:
        """Return points relative to the mean of the data, in units of the bandwidths."""
        return torch.from_numpy((X - self._center) / self.bandwidth_)
