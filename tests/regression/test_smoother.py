from __future__ import annotations

import pytest
import torch

from attent.regression import smoother
from attent.regression.kernels import KERNELS
from attent.regression.smoother import Smoother, estimate


def plain(name: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The textbook's line."""
    weights = KERNELS[name].exponent((query[:, None] - key).abs()).exp()
    return weights @ value / weights.sum(1, keepdim=True)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_estimate_is_the_textbooks(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoother, "SMALL", 0)
    # far from zero, and many bandwidths wide
    key, query = 1000 + 9 * torch.randn(2000, 2, dtype=torch.float64), 1000 + 4 * torch.randn(300, 2, dtype=torch.float64)
    value = torch.stack((key[:, 0].sin(), key[:, 1]), 1) - torch.tensor([0.0, 1000.0])
    mean, seen = Smoother(key, value.to(dtype), KERNELS[name])(query)
    expected = plain(name, query, key, value)
    assert mean.dtype == dtype
    assert torch.equal(seen, expected.isfinite().all(1))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(mean.double()[seen], expected[seen], atol=20 * tolerance, rtol=tolerance)
    assert not mean[~seen].any()


@pytest.mark.parametrize("name", ["gaussian", "epanechnikov", "exponential"])
def test_leaving_one_out_is_the_estimate_of_the_others(name: str) -> None:
    key, value = torch.randn(40, 2, dtype=torch.float64), torch.randn(40, 1, dtype=torch.float64)
    found = estimate(KERNELS[name], key, key, value, torch.arange(40))
    for place in range(40):
        others = torch.arange(40) != place
        expected = plain(name, key[place : place + 1], key[others], value[others])
        assert found.seen[place].item() == bool(expected.isfinite().all())
        if found.seen[place]:
            torch.testing.assert_close(found.mean[place : place + 1], expected)


def test_a_far_query_is_answered_by_the_nearest() -> None:
    key = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    mean, seen = Smoother(key, 10 * key, KERNELS["gaussian"])(torch.tensor([[1e3]], dtype=torch.float64))
    assert mean.item() == 20.0
    assert seen.item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [100.0, 1e3, 1e5, 1e9])
def test_few_queries_far_apart_keep_their_digits(dtype: torch.dtype, spread: float) -> None:
    key, query = (spread * torch.rand(number, 2, dtype=torch.float64) for number in (20_000, 12))
    value = key[:, :1].sin()
    mean, seen = Smoother(key, value.to(dtype), KERNELS["gaussian"])(query)
    scores = -0.5 * (query[:, None] - key).square().sum(-1)
    torch.testing.assert_close(mean.double(), scores.softmax(1) @ value, rtol=0, atol=2e-6 if dtype == torch.float32 else 1e-9)
    assert seen.all()


def test_no_queries() -> None:
    key = torch.randn(7, 2, dtype=torch.float64)
    assert Smoother(key, key, KERNELS["gaussian"])(key[:0]).mean.shape == (0, 2)
