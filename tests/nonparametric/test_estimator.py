import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.utils.estimator_checks import parametrize_with_checks

from attent.errors import ArgumentError, AttentError, UnknownNameError
from attent.nonparametric.estimator import AttentionRegressor
from attent.nonparametric.kernels import KERNELS
from attent.nonparametric.lookup import lookup


def statsmodels_regression(x: np.ndarray, y: np.ndarray, bandwidth: Any) -> Any:
    regression = pytest.importorskip(
        "statsmodels.nonparametric.kernel_regression", reason="statsmodels is not installed"
    )
    # where its search has gone to a bandwidth near 0 its weights are 0/0
    with np.errstate(invalid="ignore"):
        return regression.KernelReg(y, x, "c" * x.shape[1], "lc", bw=bandwidth, rng=0)


def expected_failures(estimator: Any) -> dict[str, str]:
    """Name the check that a learnt bandwidth fails.

    A sample given twice would predict itself, one of weight 2 is left out whole.
    """
    name = "check_sample_weight_equivalence_on_dense_data"
    return {name: "leaves whole samples out"} if estimator.bandwidth == "loo" else {}


ESTIMATORS = [AttentionRegressor(), AttentionRegressor(0.7, kernel="exponential")]


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
@pytest.mark.slow
def test_it_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_the_published_means() -> None:
    # R's np on the data of statsmodels' own tests: bandwidths, the first means, and R²
    bandwidths, r_squared = [0.6163835, 0.1649656], 0.956381720885
    dice, size = np.random.RandomState(123456), (60, 1)
    dice.binomial(2, 0.7, size=size)
    dice.binomial(3, 0.7, size=size)
    first, second, _ = dice.normal(size=size), dice.normal(10, 1, size=size), dice.normal(10, 2, size=size)
    x, y = np.hstack((first, second)), (0.3 + 1.2 * first + 3.7 * second + dice.normal(size=size))[:, 0]
    means = AttentionRegressor(bandwidths).fit(x, y).predict(x)
    np.testing.assert_allclose(means[:5], [31.49157, 37.29536, 43.72332, 40.58997, 36.80711], atol=1e-5)
    centred, fitted = y - y.mean(), means - y.mean()
    assert (centred @ fitted) ** 2 / (centred @ centred) / (fitted @ fitted) == pytest.approx(r_squared, abs=1e-5)
    assert AttentionRegressor().fit(x, y).bandwidth_ == pytest.approx(bandwidths, rel=1e-3)


@pytest.mark.parametrize("features", [1, 3])
def test_statsmodels_says_the_same(features: int) -> None:
    dice = np.random.RandomState(features)
    x, query = dice.normal(100.0, 3.0, (400, features)), dice.normal(100.0, 2.0, (50, features))
    y = x.sum(1) ** 2 + dice.normal(size=400)
    bandwidth = dice.uniform(2.0, 4.0, features)
    expected = statsmodels_regression(x, y, bandwidth).fit(query)[0]
    predictions = AttentionRegressor(bandwidth).fit(x, y).predict(query)
    np.testing.assert_allclose(predictions, expected, rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_what_is_learnt_is_at_least_as_good_as_what_statsmodels_finds(seed: int) -> None:
    dice = np.random.RandomState(seed)
    x = dice.uniform(-2, 2, (50, 1 + seed % 2))
    y = np.sin(3 * x[:, 0]) + 0.3 * dice.normal(size=50)
    peer = statsmodels_regression(x, y, "cv_ls")
    actual, their_score = AttentionRegressor().fit(x, y), float(peer.cv_loo(np.abs(peer.bw), peer._est_loc_constant)[0])
    assert float(peer.cv_loo(actual.bandwidth_, peer._est_loc_constant)[0]) == pytest.approx(
        actual.loo_score_, rel=1e-8
    )
    assert actual.loo_score_ <= their_score * (1 + 1e-6)


@pytest.mark.parametrize(("kernel", "features"), [(name, 1 + n % 2) for n, name in enumerate(KERNELS)])
def test_a_sample_of_weight_three_is_three_samples(kernel: str, features: int) -> None:
    dice = np.random.RandomState(features)
    x, y, query = dice.normal(size=(900, features)), dice.normal(size=900), dice.uniform(-0.5, 0.5, (60, features))
    times = dice.randint(0, 4, len(x))
    repeated = AttentionRegressor(0.5, kernel=kernel).fit(x.repeat(times, 0), y.repeat(times))
    weighted = AttentionRegressor(0.5, kernel=kernel).fit(x, y, sample_weight=1e-9 * times)
    np.testing.assert_allclose(weighted.predict(query), repeated.predict(query), rtol=1e-9, atol=1e-11)
    weights = weighted.weights(query[:3]).dense().numpy()
    assert not weights[:, times == 0].any()
    np.testing.assert_allclose(weights @ y, weighted.predict(query[:3]), rtol=1e-9, atol=1e-11)


def test_a_sample_that_weighs_far_more_is_seen_from_far() -> None:
    x = np.linspace(0.0, 12.0, 6001)[:, None]
    weight = np.where(x[:, 0] == 12.0, 1e40, 1.0)
    scores = -0.5 * x[:, 0] ** 2 + np.log(weight)
    shares = np.exp(scores - scores.max())
    predictions = AttentionRegressor(1.0).fit(x, x[:, 0], weight).predict(np.zeros((7, 1)))
    np.testing.assert_allclose(predictions, shares @ x[:, 0] / shares.sum(), rtol=1e-9)
    assert predictions[0] > 11.9


@pytest.mark.slow
@pytest.mark.parametrize("bandwidth", ["loo", "rule"])
def test_learnt_bandwidths_depend_on_the_ratio_of_weights(bandwidth: str) -> None:
    dice = np.random.RandomState(0)
    x, y = dice.uniform(-2, 2, (45, 1)), dice.normal(size=45)
    weights = None, np.full(45, 0.3), np.where(np.arange(45) < 30, 2.0, 0.0)
    plain, even, weighted = (AttentionRegressor(bandwidth).fit(x, y, weight).bandwidth_ for weight in weights)
    np.testing.assert_allclose(even, plain, rtol=1e-5)
    np.testing.assert_allclose(weighted, AttentionRegressor(bandwidth).fit(x[:30], y[:30]).bandwidth_, rtol=1e-5)


@pytest.fixture
def frequent_warnings() -> Iterator[None]:
    """PyTorch gives some warnings, which are errors here, once in a process; let it repeat them."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.parametrize("bandwidth", ["loo", "rule", 0.3])
@pytest.mark.usefixtures("frequent_warnings")
def test_arrays_that_cannot_be_written_to(bandwidth: Any) -> None:
    x, y, weight = (np.linspace(0.0, 1.0, 8) ** power for power in (1, 2, 0))
    for array in (x, y, weight):
        array.setflags(write=False)
    with pytest.raises(UserWarning, match="not writable"):
        torch.from_numpy(x)
    AttentionRegressor(bandwidth).fit(x[:, None], (y > 0.3) * 1, weight).predict(x[:, None])
    AttentionRegressor(bandwidth).fit(x[:, None], y[::-1]).predict(x[:, None])
    lookup(x, x, y, method="soft", bandwidth=x[1:2])
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame({"x": x, "y": y})
    model = AttentionRegressor(bandwidth).fit(table[["x"]], table["y"], table["x"])
    assert list(model.feature_names_in_) == ["x"]
    model.predict(table[["x"]])


def test_the_model_keeps_its_data() -> None:
    x, y = np.arange(4.0)[:, None], np.arange(4.0)
    model = AttentionRegressor(0.1).fit(x, y)
    x[:], y[:] = 9, 9
    assert model.y_.tolist() == model.X_[:, 0].tolist() == [0, 1, 2, 3]


def test_where_no_key_is_near_the_answer_is_nan() -> None:
    model = AttentionRegressor(1.0, kernel="uniform").fit([[0.0], [1.0]], [3.0, 5.0])
    with pytest.warns(UserWarning, match="^1 of 2 queries have no key within the bandwidth; predicting NaN$"):
        predictions = model.predict([[0.5], [9.0]])
    assert predictions[0] == 4.0
    assert np.isnan(predictions[1])
    assert AttentionRegressor(1.0).fit([[0.0], [1.0]], [3.0, 5.0]).predict([[99.0]])[0] == 5.0


def test_the_type_of_predictions() -> None:
    x = np.random.RandomState(0).normal(size=(9, 1))
    for dtype in ("float32", "float64"):
        assert AttentionRegressor("rule").fit(x.astype(dtype), x[:, 0]).predict(x).dtype == dtype


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"bandwidth": 0.0}, ArgumentError, r'^bandwidth must be "loo", "rule", a number > 0 or 2 of them, one per'),
        ({"bandwidth": [1.0, 2.0, 3.0]}, ArgumentError, r"got \[1.0, 2.0, 3.0\]$"),
        ({"bandwidth": "lo"}, UnknownNameError, "^unknown bandwidth 'lo'; did you mean 'loo'"),
        ({"kernel": "gauss"}, UnknownNameError, "^unknown kernel 'gauss'; did you mean 'gaussian'"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], error: type[AttentError], message: str) -> None:
    with pytest.raises(error, match=message):
        AttentionRegressor(**settings).fit(np.ones((3, 2)), np.ones(3))
    with pytest.raises(ValueError, match="Negative values"):
        AttentionRegressor(1.0).fit([[-1.0], [1.0]], [3.0, 7.0], [1, -3])


def test_dates_are_refused_and_their_days_are_features() -> None:
    days = np.datetime64("2020-01-01") + np.arange(4)[:, None]
    y, numbers = np.arange(4.0), (days - np.datetime64(0, "D")) / np.timedelta64(1, "D")
    model = AttentionRegressor(1.0).fit(numbers, y)
    assert model.predict(numbers[:1])[0] < 1.0
    assert AttentionRegressor(1.0).fit(numbers.tolist(), y).n_features_in_ == 1
    for dates in (days, days - days[0]):
        for read in (
            lambda dates=dates: AttentionRegressor(1.0).fit(dates, y),
            lambda dates=dates: model.predict(dates),
        ):
            with pytest.raises(
                ArgumentError, match=r"^features must be numbers, got dates or durations: convert them to days"
            ):
                read()


def test_columns_of_dates_are_refused() -> None:
    pandas = pytest.importorskip("pandas", reason="columns of dates need pandas")
    days = pandas.date_range("2020-01-01", periods=4)
    for dates in (days, days.tz_localize("UTC"), days - days[0]):
        frame = pandas.DataFrame({"size": 0.0, "day": dates})
        with pytest.raises(ArgumentError, match=r"^features must be numbers, got dates or durations"):
            AttentionRegressor(1.0).fit(frame, np.arange(4.0))
        assert AttentionRegressor(1.0).fit(frame[["size"]], np.arange(4.0)).n_features_in_ == 1
