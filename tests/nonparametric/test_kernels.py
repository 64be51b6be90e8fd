import copy
import math

import numpy as np
import pytest
import torch

from attent.attention import attend
from attent.errors import ArgumentError, UnknownNameError
from attent.nonparametric import estimator, smoother
from attent.nonparametric.estimator import LeaveOneOut, learn_bandwidth, rule_of_thumb
from attent.nonparametric.kernels import ALIASES, KERNELS, Kernel, LogKernel, Within, get_kernel

# K(u) as the textbooks write it, up to a constant
WRITTEN = {
    "gaussian": lambda u: math.exp(-u * u / 2),
    "exponential": lambda u: math.exp(-abs(u)),
    "logistic": lambda u: 1 / (math.exp(u) + 2 + math.exp(-u)),
    "uniform": lambda u: float(abs(u) <= 1),
    "triangular": lambda u: max(1 - abs(u), 0),
    "epanechnikov": lambda u: max(1 - u * u, 0),
    "biweight": lambda u: max(1 - u * u, 0) ** 2,
    "triweight": lambda u: max(1 - u * u, 0) ** 3,
    "tricube": lambda u: max(1 - abs(u) ** 3, 0) ** 3,
    "cosine": lambda u: math.cos(math.pi * u / 2) if abs(u) < 1 else 0.0,
}


@pytest.mark.parametrize("name", KERNELS)
def test_weights_are_shares_of_the_kernel(name: str) -> None:
    assert WRITTEN.keys() == KERNELS.keys()
    query, key = torch.randn(5, 2, dtype=torch.float64), torch.randn(11, 2, dtype=torch.float64)
    key[0] = query[0] + torch.tensor([1.0, 0.25])  # on the border
    shares = [[math.prod(WRITTEN[name](float(u)) for u in q - k) for k in key] for q in query]
    expected = torch.tensor(shares, dtype=torch.float64)
    expected = expected / expected.sum(-1, keepdim=True).clamp(min=1e-300)
    for parts in (KERNELS[name].parts(query, key), KERNELS[name].fast_parts(query, key)):
        actual, reference, score, mask = parts
        _, weights = attend(actual, reference, reference, score=score, mask=mask, return_map=True)
        torch.testing.assert_close(weights.dense(), expected)
    distance = torch.linspace(0, 2, 41, dtype=torch.float64)[:, None]
    exponents = KERNELS[name].exponent(distance)
    expected = torch.tensor([WRITTEN[name](u) for u in distance[:, 0].tolist()], dtype=torch.float64).log()
    torch.testing.assert_close(exponents - exponents[0], expected - expected[0])
    assert bool((exponents[1:] <= exponents[:-1]).all())


def test_a_score_has_gradients_beyond_the_end() -> None:
    query, key = torch.randn(3, 2, dtype=torch.float64, requires_grad=True), 3 * torch.randn(5, 2, dtype=torch.float64)
    score, mask = LogKernel(KERNELS["biweight"]), Within(query.detach(), key)
    attend(query, key, key, score=score, mask=mask).sum().backward()
    assert bool(query.grad.isfinite().all())


def test_the_border_belongs_to_the_uniform_kernel_alone() -> None:
    single = torch.tensor([[1.0]])
    assert KERNELS["uniform"].is_positive(single).item()
    assert not KERNELS["triangular"].is_positive(single).item()


def test_names_and_copies() -> None:
    assert get_kernel("boxcar") is KERNELS["uniform"]
    assert set(ALIASES.values()) <= KERNELS.keys()
    own = Kernel(lambda distance: -distance.square())
    assert get_kernel(own) is own
    assert copy.deepcopy(own) == own
    assert copy.deepcopy(KERNELS["gaussian"]) is KERNELS["gaussian"]
    with pytest.raises(UnknownNameError, match=r"^unknown kernel 'epanechnikow'; did you mean 'epanechnikov'"):
        get_kernel("epanechnikow")
    with pytest.raises(ArgumentError, match=r"^kernel must be a name or a Kernel, got 3$"):
        get_kernel(3)


def data(n: int = 60, features: int = 2) -> tuple[np.ndarray, np.ndarray]:
    dice = np.random.RandomState(1)
    x = dice.normal(5.0, 1.0, (n, features))
    return x, np.sin(2 * x[:, :1]) + 0.2 * dice.normal(size=(n, 1))


def left_out_score(x: np.ndarray, y: np.ndarray, h: np.ndarray) -> float:
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
    assert loss.score(h) == pytest.approx(left_out_score(x, y, h), rel=1e-10)
    assert loss(np.log(h))[0] == pytest.approx(left_out_score(x, y, h) / y.var(), rel=1e-10)


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
    assert score == pytest.approx(left_out_score(x, y, learnt))
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
