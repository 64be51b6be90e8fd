"""Kernel regression as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from attent.attention.attend import attend
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, check_known, needs
from attent.nonparametric.bandwidth import learn_bandwidth, rule_of_thumb
from attent.nonparametric.kernels import Kernel, get_kernel
from attent.nonparametric.smoother import Smoother

with needs("AttentionRegressor needs scikit-learn", "regression"):
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def dates_as_days(X: Any) -> Any:
    """Return an array or a DataFrame with its dates as days since 1970, in UTC if they have a time zone.

    NaN where one is missing.
    """
    if isinstance(X, np.ndarray):
        return _days(X) if X.dtype.kind == "M" else X
    kinds = [getattr(dtype, "kind", "") for dtype in getattr(X, "dtypes", ())] if hasattr(X, "iloc") else []
    if "M" not in kinds:
        return X
    # by position, since two columns may have one name
    columns = [X.iloc[:, index] for index in range(X.shape[1])]
    days = [
        _days(column.to_numpy("datetime64[us]")) if kind == "M" else column
        for kind, column in zip(kinds, columns, strict=True)
    ]
    return type(X)(dict(enumerate(days)), index=X.index).set_axis(X.columns, axis=1)


def _days(dates: np.ndarray) -> np.ndarray:
    return (dates - np.datetime64(0, "D")) / np.timedelta64(1, "D")


class AttentionRegressor(RegressorMixin, BaseEstimator):
    """Kernel regression: m(q) = Σᵢ K((q − xᵢ)/h) yᵢ / Σᵢ K((q − xᵢ)/h), attention whose keys and values are the data.

    Nadaraya 1964, "On Estimating Regression"; Watson 1964, "Smooth Regression Analysis". In memory linear in queries
    and data.

    Args:
        bandwidth: h > 0, in the units of the features: a number, one per feature, "loo" to learn one per feature by
            leave-one-out cross-validation, or "rule" for the normal reference rule 1.06 σ n^(−1/(4 + D)).
        kernel: "gaussian", "exponential", "logistic", or one that ends at a bandwidth: "uniform", "triangular",
            "epanechnikov", "biweight", "triweight", "tricube", "cosine"; products over features. Or your own `Kernel`.
        dtype: the type of predictions, "float32" or "float64"; that of the training data if not given.
        loo_points: the number of samples to leave out, drawn at random if not all; if not given, as many as take 2·10⁷
            pairs per evaluation, and at least 200.
        random_state: the seed or generator of that draw, as in scikit-learn.

    Attributes:
        bandwidth_: (D,) the bandwidths.
        loo_score_: with "loo" the mean squared leave-one-out error, a mean over outputs.
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
        dtype: str | None = None,
        loo_points: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.bandwidth = bandwidth
        self.kernel = kernel
        self.dtype = dtype
        self.loo_points = loo_points
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> AttentionRegressor:
        """Store the data, and learn the bandwidths unless they are given.

        Args:
            X: (n, D) numbers; dates count as days, in which the bandwidth is then given.
            y: (n,) or (n, outputs) numbers.
            sample_weight: (n,) ≥ 0, by which the kernel's weight of each sample is multiplied: 2 counts as the sample
                given twice, 0 as the sample left away. Leave-one-out still leaves a whole sample out, and counts its
                error by its weight; "rule" takes (Σw)²/Σw² for n. Both depend on the ratio of weights alone.

        Raises:
            ArgumentError: an invalid setting.
        """
        kernel = get_kernel(self.kernel)
        check_known("dtype", None if self.dtype is None else str(self.dtype), DTYPES)
        points = self.loo_points
        if points is not None and (isinstance(points, bool) or not isinstance(points, int | np.integer) or points < 1):
            raise ArgumentError(f"loo_points must be a whole number ≥ 1, got {points!r}")
        X, y = validate_data(
            self, dates_as_days(X), y, dtype=(np.float64, np.float32), multi_output=True, y_numeric=True
        )
        self._type = DTYPES[self.dtype or str(X.dtype)]
        # copies: what pandas and others share with an estimator cannot be written to, nor may it change later
        self.X_, self.y_ = X.astype(np.float64), np.array(y, dtype=np.float64, order="C")
        x, outputs, weight = self.X_, self.y_.reshape(len(self.y_), -1), None
        self._weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            self._weight = torch.from_numpy(weight / weight.max())
            counts = weight > 0
            x, outputs, weight = x[counts], outputs[counts], self._weight.numpy()[counts]
        self._set_bandwidth(kernel, x, outputs, weight)
        self._center = x.mean(0)
        values = torch.from_numpy(outputs)
        # without their mean, which is added to predictions, the values keep their digits in float32
        self._mean = values.mean(0)
        weights = None if weight is None else torch.from_numpy(weight)
        self._smoother = Smoother(self._scale(x), (values - self._mean).to(self._type), kernel, weights)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the weighted mean of the values for each query: (m,) or (m, outputs).

        NaN, with a warning, where no key has a weight, which happens only with kernels that end. Where all weights of a
        gaussian would round to zero, the nearest keys count.
        """
        query = self._queries(X)
        estimate = self._smoother(query)
        mean = estimate.mean.to(torch.float64) + self._mean
        has_no_keys = ~estimate.has_keys
        if bool(has_no_keys.any()):
            warnings.warn(
                f"{int(has_no_keys.sum())} of {len(mean)} queries have no key within the bandwidth; predicting NaN",
                stacklevel=2,
            )
            mean[has_no_keys] = torch.nan
        return mean.to(self._type).numpy().reshape(len(mean), *self.y_.shape[1:])

    def weights(self, X: Any) -> AttentionMap:
        """Return the weights of the training data (columns) for each query (rows), as a lazy matrix.

        Sample weights are included.

        Args:
            X: (m, D).
        """
        query, key = (points.to(self._type) for points in (self._queries(X), self._scale(self.X_)))
        _, _, score, mask = get_kernel(self.kernel).parts(query, key)
        bias = None if self._weight is None else self._weight.log().to(self._type)[None, None, None]
        return attend(
            query, key, key[:, :1], score=score, mask=mask, bias=bias, implementation="tiled", return_map=True
        )[1]

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
                self.bandwidth_, self.loo_score_ = learn_bandwidth(x, y, kernel, random, self.loo_points, weight)
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
        return self._scale(
            np.asarray(validate_data(self, dates_as_days(X), dtype=(np.float64, np.float32), reset=False))
        )

    def _scale(self, X: np.ndarray) -> torch.Tensor:
        """Return points in bandwidths, relative to the mean of the data."""
        return torch.from_numpy((X - self._center) / self.bandwidth_)
