"""Kernel classification as a scikit-learn estimator: kernel regression of class membership."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from attent.attention.maps.attention_map import AttentionMap
from attent.errors import needs
from attent.nonparametric.estimator import AttentionRegressor, dates_as_days
from attent.nonparametric.kernels import Kernel

with needs("AttentionClassifier needs scikit-learn", "regression"):
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data


class AttentionClassifier(ClassifierMixin, BaseEstimator):
    """The share of each class among nearby samples: P(c | q) = Σᵢ K((q − xᵢ)/h) [yᵢ = c] / Σᵢ K((q − xᵢ)/h).

    The regression of Nadaraya 1964 and Watson 1964 whose values are one-hot vectors of the classes; see
    `AttentionRegressor`.

    Args:
        bandwidth: as in `AttentionRegressor`; "loo" minimizes the squared error of the left-out samples' probabilities,
            each class's error being divided by the class's variance.
        kernel: as in `AttentionRegressor`.
        random_state: as in `AttentionRegressor`.

    Attributes:
        classes_: (classes,) sorted.
        class_prior_: (classes,) the share of each class in the training data, weighted by the sample weights.
        bandwidth_: (D,) the bandwidths.
        n_features_in_: D.

    Example:
        >>> model = attent.AttentionClassifier().fit(measures, species)
        >>> model.predict_proba([[5.1, 3.5]])
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> AttentionClassifier:
        """Store the data, and learn the bandwidths unless they are given.

        Args:
            X: (n, D) numbers; dates are converted to days, and their bandwidth is in days.
            y: (n,) classes: numbers or strings.
            sample_weight: (n,) ≥ 0; see `AttentionRegressor.fit`. A class whose samples all have the weight 0 has
                the probability 0.

        Raises:
            ArgumentError: an invalid setting.
        """
        X, y = validate_data(self, dates_as_days(X), y, dtype=(np.float64, np.float32))
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        one_hot = np.eye(len(self.classes_))[index]
        weight = np.ones(len(X))
        if sample_weight is not None:
            weight = sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self.class_prior_ = np.average(one_hot, 0, weight)
        settings = self.get_params(deep=False)
        self._regressor = AttentionRegressor(**settings).fit(X, one_hot, sample_weight)
        self.bandwidth_ = self._regressor.bandwidth_
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the weighted share of each class for each query: (m, classes), in the order of `classes_`.

        A query without a key within the bandwidth gets the shares in the training data, with a warning. This happens
        only with kernels of compact support.
        """
        X = self._checked(X)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "[0-9]+ of [0-9]+ queries have no key within the bandwidth")
            shares = self._regressor.predict(X).clip(0.0, 1.0)
        has_no_keys = np.isnan(shares[:, 0])
        if has_no_keys.any():
            warnings.warn(
                (
                    f"{has_no_keys.sum()} of {len(shares)} queries have no key within the bandwidth; using the "
                    "class shares in the training data"
                ),
                stacklevel=2,
            )
            shares[has_no_keys] = self.class_prior_
        return shares / shares.sum(1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """Return the class with the largest share for each query, (m,); the first one in a tie."""
        shares = self.predict_proba(X)
        return self.classes_[shares.argmax(1)]

    def weights(self, X: Any) -> AttentionMap:
        """Return the weights of the training data (columns) for each query (rows), as a lazy matrix.

        Sample weights are included.

        Args:
            X: (m, D).
        """
        return self._regressor.weights(self._checked(X))

    def _checked(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return np.asarray(validate_data(self, dates_as_days(X), dtype=(np.float64, np.float32), reset=False))
