import copy
import math

import numpy as np
import pytest
import torch

from attent.attention import attend
from attent.errors import ArgumentError, UnknownNameError
from attent.nonparametric import estimator
from attent.nonparametric.estimator import LeaveOneOut, learn_bandwidth, rule_of_thumb
from attent.nonparametric.kernels import ALIASES, KERNELS, Kernel, LogKernel, Within, get_kernel, smooth

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
    kernel = KERNELS[name]
    _, weights = attend(query, key, key, score=kernel.score, mask=kernel.mask(query, key), return_map=True)
    torch.testing.assert_close(weights.dense(), expected)


def plain(name: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The textbook's line."""
    shares = [
        [math.prod(WRITTEN[name](u) for u in difference) for difference in row]
        for row in (query[:, None] - key).tolist()
    ]
    weights = torch.tensor(shares, dtype=torch.float64)
    return weights @ value / weights.sum(1, keepdim=True)


@pytest.mark.parametrize("name", KERNELS)
def test_the_estimate_is_the_textbooks(name: str) -> None:
    # far from zero, and many bandwidths wide
    key, query = (1000 + spread * torch.randn(count, 2, dtype=torch.float64) for count, spread in ((90, 9), (30, 4)))
    value = torch.stack((key[:, 0].sin(), key[:, 1]), 1)
    mean, has_keys = smooth(KERNELS[name], query, key, value)
    expected = plain(name, query, key, value)
    assert torch.equal(has_keys, expected.isfinite().all(1))
    torch.testing.assert_close(mean[has_keys], expected[has_keys], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["gaussian", "epanechnikov", "exponential"])
def test_leaving_one_out_is_the_estimate_of_the_others(name: str) -> None:
    key, value = torch.randn(40, 2, dtype=torch.float64), torch.randn(40, 1, dtype=torch.float64)
    estimate = smooth(KERNELS[name], key, key, value, torch.arange(40))
    for position in range(40):
        others = torch.arange(40) != position
        expected = plain(name, key[position : position + 1], key[others], value[others])
        assert estimate.has_keys[position].item() == bool(expected.isfinite().all())
        if estimate.has_keys[position]:
            torch.testing.assert_close(estimate.mean[position : position + 1], expected)


def test_a_query_far_from_every_key_is_answered_by_the_nearest() -> None:
    key = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    mean, has_keys = smooth(KERNELS["gaussian"], torch.tensor([[1e3]], dtype=torch.float64), key, 10 * key)
    assert (mean.item(), has_keys.item()) == (20.0, True)


def test_a_score_has_gradients_beyond_the_end() -> None:
    query, key = torch.randn(3, 2, dtype=torch.float64, requires_grad=True), 3 * torch.randn(5, 2, dtype=torch.float64)
    score, mask = LogKernel(KERNELS["biweight"]), Within(query.detach(), key)
    attend(query, key, key, score=score, mask=mask).sum().backward()
    assert bool(query.grad.isfinite().all())


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


def test_the_score_is_that_of_leaving_one_out() -> None:
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
    x, y = data(100, 1)
    full = learn_bandwidth(x, y, KERNELS["gaussian"], np.random.RandomState(0))[0]
    monkeypatch.setattr(estimator, "PAIRS", 100)
    monkeypatch.setattr(estimator, "MIN_POINTS", 20)
    sample = learn_bandwidth(x, y, KERNELS["gaussian"], np.random.RandomState(0))[0]
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
