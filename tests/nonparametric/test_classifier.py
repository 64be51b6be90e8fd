import warnings
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from attent.errors import UnknownNameError
from attent.nonparametric.classifier import AttentionClassifier
from attent.nonparametric.estimator import AttentionRegressor
from attent.nonparametric.kernels import KERNELS


def no_repetition(estimator: AttentionClassifier) -> dict[str, str]:
    """Name the check that a learnt bandwidth fails, as the regressor's does."""
    return (
        {"check_sample_weight_equivalence_on_dense_data": "leaves whole samples out"}
        if estimator.bandwidth == "loo"
        else {}
    )


@parametrize_with_checks(
    [AttentionClassifier(), AttentionClassifier(0.7, kernel="tricube")], expected_failed_checks=no_repetition
)
@pytest.mark.slow
def test_it_is_an_estimator(estimator: AttentionClassifier, check: Callable[[AttentionClassifier], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.parametrize("kernel", KERNELS)
def test_probabilities_are_weighted_shares(kernel: str) -> None:
    dice = np.random.RandomState(3)
    x, classes, weight = dice.uniform(0, 1, (70, 2)), dice.choice(["cat", "ant", "bee"], 70), dice.uniform(0, 2, 70)
    model = AttentionClassifier([0.6, 0.8], kernel=kernel).fit(x, classes, weight)
    assert model.classes_.tolist() == ["ant", "bee", "cat"]
    weights = model.weights(x[:9]).dense().numpy()
    probabilities = model.predict_proba(x[:9])
    np.testing.assert_allclose(probabilities, weights @ (classes[:, None] == model.classes_), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    assert model.predict(x[:9]).tolist() == model.classes_[probabilities.argmax(1)].tolist()
    # two classes are the regression of 0 and 1
    regression = AttentionRegressor([0.6, 0.8], kernel=kernel).fit(x, (classes == "cat") * 1.0, weight)
    np.testing.assert_allclose(probabilities[:, 2], regression.predict(x[:9]), rtol=1e-9, atol=1e-12)


def test_one_worked_by_hand() -> None:
    model = AttentionClassifier(1.0, kernel="triangular").fit([[0.0], [0.5], [1.0]], ["a", "a", "b"], [1, 1, 2])
    # at 0.75: K = 0.25, 0.75, 0.75, so a has 0.25 + 0.75, and b has 2 · 0.75
    assert model.predict_proba([[0.75]])[0].tolist() == pytest.approx([0.4, 0.6])
    assert model.predict([[0.75], [0.1]]).tolist() == ["b", "a"]
    assert model.score([[0.75], [0.1]], ["b", "b"], [3, 1]) == 0.75


def test_where_no_key_is_near_the_classes_have_their_shares() -> None:
    model = AttentionClassifier(1.0, kernel="uniform").fit([[0.0], [1.0], [2.0]], [5, 5, 7])
    with pytest.warns(UserWarning, match="^1 of 2 queries have no key within the bandwidth; using the class shares"):
        probabilities = model.predict_proba([[2.5], [9.0]])
    np.testing.assert_allclose(probabilities, [[0, 1], [2 / 3, 1 / 3]])


@pytest.mark.slow
def test_irises_are_told_apart() -> None:
    x, y = load_iris(return_X_y=True)
    # three classes of fifty: a constant would have 1/3
    assert cross_val_score(AttentionClassifier(), x, y, cv=5).mean() > 0.94


def test_a_wrong_setting() -> None:
    with pytest.raises(UnknownNameError, match=r"^unknown kernel 'gauss'"):
        AttentionClassifier(kernel="gauss").fit([[0.0], [1.0]], [0, 1])
