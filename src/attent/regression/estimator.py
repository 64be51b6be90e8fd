"""Kernel regression as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from attent.attention.attend import attend
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, AttentError, UnknownNameError
from attent.regression.bandwidth import learn, rule_of_thumb
from attent.regression.kernels import Kernel, kernel
from attent.regression.smoother import Smoother

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise AttentError("AttentionRegressor needs scikit-learn: pip install 'attent[regression]'") from error

DTYPES = {"float32": torch.float32, "float64": torch.float64}


class AttentionRegressor(RegressorMixin, BaseEstimator):
    """Kernel regression: m(q) = Σᵢ K((q − xᵢ)/h) yᵢ / Σᵢ K((q − xᵢ)/h), attention whose keys and values are the data.

    Nadaraya 1964, "On Estimating Regression"; Watson 1964, "Smooth Regression Analysis". In memory linear in queries and data.

    Args:
        bandwidth: h > 0, in the units of the features: a number, one per feature, "loo" to learn one per feature by leaving one out, or
            "rule" for the normal reference rule 1.06 σ n^(−1/(4 + D)).
        kernel: "gaussian", "exponential", "logistic", or one that ends at a bandwidth: "uniform", "triangular", "epanechnikov",
            "biweight", "triweight", "tricube", "cosine"; products over features. Or a `Kernel` of yours.
        dtype: "float32" or "float64", in which predictions are computed; that of the training data if not given.
        loo_points: how many samples are left out in their turn, drawn at random if not all; so many that one look takes 2·10⁷ pairs, and
            200 at least, if not given.
        random_state: the draw's, as scikit-learn has it.

    Attributes:
        bandwidth_: (D,) the bandwidths.
        loo_score_: with "loo" the mean squared error of leaving one out, a mean over outputs.
        X_: (n, D) the keys, in float64.
        y_: (n,) or (n, outputs) the values, in float64.
        n_features_in_: D.

    Example:
        >>> model = attent.AttentionRegressor().fit(grades, salaries)
        >>> model.predict([[3.5]])
        >>> model.weights([[3.5]]).top(5)  # who votes, and how much
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

    def fit(self, X: Any, y: Any) -> AttentionRegressor:
        """Keep the data, and learn the bandwidths if they are not given.

        Args:
            X: (n, D) numbers.
            y: (n,) or (n, outputs) numbers.

        Raises:
            ArgumentError: a setting that cannot be used.
        """
        chosen = kernel(self.kernel)
        if self.dtype is not None and self.dtype not in DTYPES:
            raise UnknownNameError("dtype", str(self.dtype), DTYPES)
        count = self.loo_points
        if count is not None and (isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1):
            raise ArgumentError(f"loo_points must be a whole number ≥ 1, got {count!r}")
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32), multi_output=True, y_numeric=True)
        self._type = DTYPES[self.dtype or str(X.dtype)]
        self.X_, self.y_ = X.astype(np.float64), np.asarray(y, dtype=np.float64)
        self._choose(chosen, self.X_, self.y_.reshape(len(self.y_), -1))
        self._middle = self.X_.mean(0)
        values = torch.from_numpy(self.y_.reshape(len(self.y_), -1))
        # what the values are about is added again at the end, so that float32 keeps their digits
        self._level = values.mean(0)
        self._smoother = Smoother(self._units(self.X_), (values - self._level).to(self._type), chosen)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The mean of the values, each weighed by how near its key is: (m,) or (m, outputs).

        NaN, with a warning, where no key has a weight, as only kernels that end know it. Where a gaussian's weights would all round to
        zero, the nearest keys answer.
        """
        query = self._queries(X)
        found = self._smoother(query)
        mean = found.mean.to(torch.float64) + self._level
        if not bool(found.seen.all()):
            alone = int((~found.seen).sum())
            warnings.warn(f"{alone} of {len(mean)} queries have no key within the bandwidth; predicting NaN", stacklevel=2)
            mean[~found.seen] = torch.nan
        return mean.to(self._type).numpy().reshape(len(mean), *self.y_.shape[1:])

    def weights(self, X: Any) -> AttentionMap:
        """Who votes, and how much: the weights of the training data (columns) for each query (rows), computed where they are looked at.

        Args:
            X: (m, D).
        """
        query, key = (points.to(self._type) for points in (self._queries(X), self._units(self.X_)))
        _, _, score, mask = kernel(self.kernel).parts(query, key)
        _, found = attend(query, key, key[:, :1], score=score, mask=mask, implementation="tiled", return_map=True)
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _choose(self, chosen: Kernel, x: np.ndarray, y: np.ndarray) -> None:
        given = self.bandwidth
        if isinstance(given, str):
            if given not in ("loo", "rule"):
                raise UnknownNameError("bandwidth", given, ("loo", "rule"))
            if given == "loo":
                self.bandwidth_, self.loo_score_ = learn(x, y, chosen, check_random_state(self.random_state), self.loo_points)
            else:
                self.bandwidth_ = rule_of_thumb(x)
            return
        try:
            numbers = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            numbers = np.array(np.nan)
        if not (numbers.shape in ((), (x.shape[1],)) and np.isfinite(numbers).all() and (numbers > 0).all()):
            raise ArgumentError(f'bandwidth must be "loo", "rule", a number > 0 or {x.shape[1]} of them, one per feature, got {given!r}')
        self.bandwidth_ = np.broadcast_to(numbers, x.shape[1:]).copy()

    def _queries(self, X: Any) -> torch.Tensor:
        check_is_fitted(self)
        return self._units(np.asarray(validate_data(self, X, dtype=(np.float64, np.float32), reset=False)))

    def _units(self, X: np.ndarray) -> torch.Tensor:
        """Points in bandwidths, as seen from the middle of the data."""
        return torch.from_numpy((X - self._middle) / self.bandwidth_)
