import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.utils.estimator_checks import parametrize_with_checks

from attent.errors import ArgumentError, AttentError, UnknownNameError
from attent.nonparametric import smoother
from attent.nonparametric.classifier import AttentionClassifier
from attent.nonparametric.estimator import AttentionRegressor, rule_of_thumb
from attent.nonparametric.kernels import KERNELS
from attent.nonparametric.lookup import lookup
from attent.nonparametric.smoother import FLOAT64_WIDTH

# R's np on the data of statsmodels' own tests: bandwidths, the first means, and R².
BANDWIDTHS, MEANS, R_SQUARED = (
    [0.6163835, 0.1649656],
    [31.49157, 37.29536, 43.72332, 40.58997, 36.80711],
    0.956381720885,
)


def reference() -> tuple[np.ndarray, np.ndarray]:
    dice, size = np.random.RandomState(123456), (60, 1)
    dice.binomial(2, 0.7, size=size)
    dice.binomial(3, 0.7, size=size)
    first, second, _ = dice.normal(size=size), dice.normal(10, 1, size=size), dice.normal(10, 2, size=size)
    return np.hstack((first, second)), (0.3 + 1.2 * first + 3.7 * second + dice.normal(size=size))[:, 0]


def statsmodels_regression(x: np.ndarray, y: np.ndarray, bandwidth: Any) -> Any:
    regression = pytest.importorskip(
        "statsmodels.nonparametric.kernel_regression", reason="statsmodels is not installed"
    )
    # where its search has gone to a bandwidth near 0 its weights are 0/0
    with np.errstate(invalid="ignore"):
        return regression.KernelReg(y, x, "c" * x.shape[1], "lc", bw=bandwidth, rng=0)


def no_repetition(estimator: Any) -> dict[str, str]:
    """Name the check that a learnt bandwidth fails.

    A sample given twice would predict itself, one of weight 2 is left out whole.
    """
    return (
        {"check_sample_weight_equivalence_on_dense_data": "leaves whole samples out"}
        if estimator.bandwidth == "loo"
        else {}
    )


@parametrize_with_checks(
    [AttentionRegressor(), AttentionRegressor(0.7, kernel="exponential")], expected_failed_checks=no_repetition
)
@pytest.mark.slow
def test_it_is_an_estimator(estimator: AttentionRegressor, check: Callable[[AttentionRegressor], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_the_published_means() -> None:
    x, y = reference()
    model = AttentionRegressor(BANDWIDTHS).fit(x, y)
    means = model.predict(x)
    np.testing.assert_allclose(means[:5], MEANS, atol=1e-5)
    centred, fitted = y - y.mean(), means - y.mean()
    assert (centred @ fitted) ** 2 / (centred @ centred) / (fitted @ fitted) == pytest.approx(R_SQUARED, abs=1e-5)
    assert AttentionRegressor().fit(x, y).bandwidth_ == pytest.approx(BANDWIDTHS, rel=1e-3)


@pytest.mark.parametrize("features", [1, 2, 3])
def test_statsmodels_says_the_same(features: int) -> None:
    dice = np.random.RandomState(features)
    x, query = dice.normal(100.0, 3.0, (400, features)), dice.normal(100.0, 2.0, (50, features))
    y = x.sum(1) ** 2 + dice.normal(size=400)
    bandwidth = dice.uniform(2.0, 4.0, features)
    expected = statsmodels_regression(x, y, bandwidth).fit(query)[0]
    for dtype, tolerance in (("float64", 1e-11), ("float32", 1e-5)):
        predictions = AttentionRegressor(bandwidth, dtype=dtype).fit(x, y).predict(query)
        assert predictions.dtype == dtype
        np.testing.assert_allclose(predictions, expected, rtol=tolerance)


@pytest.mark.parametrize("features", [2, 4])
def test_many_keys_keep_the_digits_of_float32(features: int) -> None:
    dice = np.random.default_rng(features)
    # side by side, for what lies far apart is computed in float64
    x, query = dice.normal(size=(100_000, features)), dice.uniform(-0.6, 0.0, (500, features))
    y = np.sin(x.sum(1)) + 0.1 * dice.normal(size=len(x))
    bandwidth = rule_of_thumb(x)
    assert ((query.max(0) - query.min(0)) / bandwidth < FLOAT64_WIDTH).all()
    actual, expected = (
        AttentionRegressor(bandwidth, dtype=dtype).fit(x, y).predict(query) for dtype in ("float32", "float64")
    )
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


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


def test_several_outputs_are_as_one_by_one() -> None:
    x = np.random.RandomState(0).normal(size=(90, 2))
    y, model = np.stack((x[:, 0], 1e6 + x.sum(1)), 1), AttentionRegressor(0.4)
    single = [model.fit(x, y[:, output]).predict(x[:9]) for output in range(2)]
    np.testing.assert_allclose(model.fit(x, y).predict(x[:9]), np.stack(single, 1), rtol=1e-13)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_weights_are_those_of_the_prediction(kernel: str) -> None:
    dice = np.random.RandomState(3)
    x, y = dice.uniform(0, 1, (70, 2)), dice.normal(size=70)
    model = AttentionRegressor([0.6, 0.8], kernel=kernel).fit(x, y)
    weights = model.weights(x[:5]).dense().numpy()
    assert weights.shape == (5, 70)
    np.testing.assert_allclose(weights.sum(1), 1.0)
    np.testing.assert_allclose(weights @ y, model.predict(x[:5]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("features", [1, 2])
def test_a_sample_of_weight_three_is_three_samples(kernel: str, features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = np.random.RandomState(features)
    x, y, query = dice.normal(size=(900, features)), dice.normal(size=900), dice.uniform(-0.5, 0.5, (60, features))
    times = dice.randint(0, 4, len(x))
    repeated = AttentionRegressor(0.5, kernel=kernel).fit(x.repeat(times, 0), y.repeat(times))
    for small in (smoother.SMALL, 0):  # at once; by boxes, and the Gauss transform
        monkeypatch.setattr(smoother, "SMALL", small)
        weighted = AttentionRegressor(0.5, kernel=kernel).fit(x, y, sample_weight=1e-9 * times)
        np.testing.assert_allclose(weighted.predict(query), repeated.predict(query), rtol=1e-9, atol=1e-11)
    weights = weighted.weights(query[:3]).dense().numpy()
    assert not weights[:, times == 0].any()
    np.testing.assert_allclose(weights @ y, weighted.predict(query[:3]), rtol=1e-9, atol=1e-11)


def test_a_sample_that_weighs_far_more_is_seen_from_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoother, "SMALL", 0)
    x = np.linspace(0.0, 12.0, 6001)[:, None]
    weight = np.where(x[:, 0] == 12.0, 1e40, 1.0)
    scores = -0.5 * x[:, 0] ** 2 + np.log(weight)
    shares = np.exp(scores - scores.max())
    predictions = AttentionRegressor(1.0).fit(x, x[:, 0], weight).predict(np.zeros((7, 1)))
    np.testing.assert_allclose(predictions, shares @ x[:, 0] / shares.sum(), rtol=1e-9)
    assert predictions[0] > 11.9


@pytest.mark.parametrize("bandwidth", ["loo", "rule"])
def test_learnt_bandwidths_depend_on_the_ratio_of_weights(bandwidth: str) -> None:
    dice = np.random.RandomState(0)
    x, y = dice.uniform(-2, 2, (60, 2)), dice.normal(size=60)
    plain, even = (
        AttentionRegressor(bandwidth).fit(x, y, sample_weight=weight).bandwidth_ for weight in (None, np.full(60, 0.3))
    )
    np.testing.assert_allclose(even, plain, rtol=1e-5)
    weight = np.where(np.arange(60) < 40, 2.0, 0.0)
    half, weighted = AttentionRegressor(bandwidth).fit(x[:40], y[:40]), AttentionRegressor(bandwidth).fit(x, y, weight)
    np.testing.assert_allclose(weighted.bandwidth_, half.bandwidth_, rtol=1e-5)


def test_one_weighted_mean_by_hand() -> None:
    # two keys as near as each other: (1·3 + 3·7) / 4
    assert AttentionRegressor(1.0).fit([[-1.0], [1.0]], [3.0, 7.0], [1, 3]).predict([[0.0]])[0] == pytest.approx(
        6.0, rel=1e-15
    )
    with pytest.raises(ValueError, match="Negative values"):
        AttentionRegressor(1.0).fit([[-1.0], [1.0]], [3.0, 7.0], [1, -3])


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
    for model in (AttentionRegressor(bandwidth), AttentionClassifier(bandwidth)):
        model.fit(x[:, None], (y > 0.3) * 1, weight).predict(x[:, None])
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
        assert AttentionRegressor("rule", dtype=dtype).fit(x, x[:, 0]).weights(x[:1]).dense().dtype == getattr(
            torch, dtype
        )


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"bandwidth": 0.0}, ArgumentError, r'^bandwidth must be "loo", "rule", a number > 0 or 2 of them, one per'),
        ({"bandwidth": [1.0, 2.0, 3.0]}, ArgumentError, r"got \[1.0, 2.0, 3.0\]$"),
        ({"bandwidth": None}, ArgumentError, "got None$"),
        ({"bandwidth": "lo"}, UnknownNameError, "^unknown bandwidth 'lo'; did you mean 'loo'"),
        ({"kernel": "gauss"}, UnknownNameError, "^unknown kernel 'gauss'; did you mean 'gaussian'"),
        ({"dtype": "float16"}, UnknownNameError, "^unknown dtype 'float16'"),
        ({"loo_points": 0}, ArgumentError, "^loo_points must be a whole number ≥ 1, got 0$"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], error: type[AttentError], message: str) -> None:
    with pytest.raises(error, match=message):
        AttentionRegressor(**settings).fit(np.ones((3, 2)), np.ones(3))


def test_without_scikit_learn_it_says_so() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None; import attent; attent.attend\n"
        "try: attent.AttentionRegressor\nexcept attent.errors.AttentError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("AttentionRegressor needs scikit-learn: pip install 'attent[regression]' (")


def test_dates_count_as_days() -> None:
    pandas = pytest.importorskip("pandas", reason="columns of dates need pandas")
    days = pandas.date_range("2020-01-01", periods=60)
    y = np.sin(np.arange(60) / 5)
    numbers = AttentionRegressor().fit(np.arange(60.0)[:, None], y)
    frame = pandas.DataFrame({"day": days.tz_localize("UTC")})
    for dates in (frame, days.to_numpy()[:, None]):
        model = AttentionRegressor().fit(dates, y)
        np.testing.assert_allclose(model.bandwidth_, numbers.bandwidth_, rtol=1e-6)
        np.testing.assert_allclose(model.predict(dates), numbers.predict(np.arange(60.0)[:, None]), rtol=1e-6)
    mixed = AttentionRegressor(bandwidth=[3.0, 1.0]).fit(frame.assign(size=0.0), y)
    assert list(mixed.feature_names_in_) == ["day", "size"]
    np.testing.assert_allclose(
        mixed.predict(frame.assign(size=0.0)), AttentionRegressor(bandwidth=3.0).fit(frame, y).predict(frame)
    )
    classes = AttentionClassifier(bandwidth=1.0).fit(frame, y > 0)
    assert classes.score(frame, y > 0) > 0.9
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.array([["NaT"]], dtype="datetime64[D]"))
