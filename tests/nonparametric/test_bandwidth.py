import numpy as np
import pytest

from attent.nonparametric import estimator, smoother
from attent.nonparametric.estimator import LeaveOneOut, learn_bandwidth, rule_of_thumb
from attent.nonparametric.kernels import KERNELS


def data(n: int = 60, features: int = 2) -> tuple[np.ndarray, np.ndarray]:
    dice = np.random.RandomState(1)
    x = dice.normal(5.0, 1.0, (n, features))
    return x, np.sin(2 * x[:, :1]) + 0.2 * dice.normal(size=(n, 1))


def plain(x: np.ndarray, y: np.ndarray, h: np.ndarray) -> float:
    """CV(h) by its definition."""
    errors = []
    for position in range(len(x)):
        others = np.arange(len(x)) != position
        weights = np.exp(-0.5 * np.square((x[others] - x[position]) / h).sum(1))
        errors.append(y[position] - weights @ y[others] / weights.sum())
    return float(np.mean(np.square(errors)))


@pytest.mark.parametrize("small", [0, 2**18])
def test_the_score_is_that_of_leaving_one_out(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoother, "SMALL", small)
    x, y = data(200)
    h = np.array([0.3, 0.7])
    loss = LeaveOneOut(x, y, KERNELS["gaussian"], np.arange(len(x)))
    assert loss.score(h) == pytest.approx(plain(x, y, h), rel=1e-10)
    assert loss(np.log(h))[0] == pytest.approx(plain(x, y, h) / y.var(), rel=1e-10)


@pytest.mark.parametrize("name", ["gaussian", "exponential", "epanechnikov"])
def test_its_gradient_is_the_slope(name: str) -> None:
    x, y = data()
    loss, at, step = LeaveOneOut(x, y, KERNELS[name], np.arange(len(x))), np.log([0.8, 1.1]), 1e-6
    slope = [(loss(at + step * side)[0] - loss(at - step * side)[0]) / (2 * step) for side in np.eye(2)]
    np.testing.assert_allclose(loss(at)[1], slope, rtol=1e-4, atol=1e-7)


def test_a_point_alone_is_answered_by_the_mean_of_the_others() -> None:
    x, y = np.array([[0.0], [0.1], [9.0]]), np.array([[1.0], [2.0], [4.0]])
    loss = LeaveOneOut(x, y, KERNELS["uniform"], np.arange(3))
    assert loss.score(np.array([1.0])) == pytest.approx((1.0 + 1.0 + 2.5**2) / 3)


def test_what_is_learnt_has_a_flat_score_and_leaves_out_noise() -> None:
    x, y = data(150)
    learnt, score = learn_bandwidth(x, y, KERNELS["gaussian"], np.random.RandomState(0))
    loss = LeaveOneOut(x, y, KERNELS["gaussian"], np.arange(len(x)))
    assert score == pytest.approx(plain(x, y, learnt))
    assert np.abs(loss(np.log(learnt))[1]).max() < 1e-4
    assert score <= loss.score(rule_of_thumb(x))
    # the second feature says nothing
    assert learnt[1] > 5 * learnt[0]


@pytest.mark.parametrize("name", sorted(KERNELS.keys() - {"gaussian"}))
def test_learning_improves_on_the_rule_of_every_kernel(name: str) -> None:
    x, y = data(features=1)
    _, score = learn_bandwidth(x, y, KERNELS[name], np.random.RandomState(0))
    assert score <= LeaveOneOut(x, y, KERNELS[name], np.arange(len(x))).score(rule_of_thumb(x))


def test_some_points_are_left_out_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimator, "PAIRS", 100)
    monkeypatch.setattr(estimator, "MIN_POINTS", 20)
    x, y = data(100, 1)
    sample, full = (
        learn_bandwidth(x, y, KERNELS["gaussian"], np.random.RandomState(0), points)[0] for points in (None, 100)
    )
    assert sample != full
    assert sample == pytest.approx(full, rel=1.0)


def test_the_rule_of_thumb() -> None:
    x = np.array([[0.0, 3.0], [2.0, 3.0]])
    np.testing.assert_allclose(rule_of_thumb(x), [1.06 * 2 ** (-1 / 6), 1.0])
    # a constant whose mean rounds to another number
    constant = np.stack([np.arange(10.0), np.full(10, 0.1)], 1)
    assert constant.std(0)[1] > 0
    assert rule_of_thumb(constant)[1] == 1.0
    assert np.isnan(learn_bandwidth(x[:1], x[:1], KERNELS["gaussian"], np.random.RandomState(0))[1])
