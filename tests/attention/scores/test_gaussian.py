from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from attent.attention import attend
from attent.attention.scores import Gaussian
from attent.errors import ArgumentError


def test_distances_alone_count() -> None:
    score, query, key = Gaussian(0.7), torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    scores = score(query, key)
    torch.testing.assert_close(score(query + 3.0, key + 3.0), scores, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(score(key, query).mT, scores)
    torch.testing.assert_close(scores, -torch.cdist(query, key).square() / (2 * 0.7**2))
    assert score(query, query).diagonal(0, -2, -1).count_nonzero() == 0


def test_each_feature_may_have_its_own_bandwidth() -> None:
    query, key, sigma = torch.randn(2, 3, 5, 3), torch.randn(2, 3, 7, 3), [0.5, 1.0, 3.0]
    torch.testing.assert_close(Gaussian(sigma)(query, key), Gaussian()(query / torch.tensor(sigma), key / torch.tensor(sigma)))


def test_one_number_by_hand() -> None:
    # features 2 and 6 apart in units of σ = 2 and 3: −(1² + 2²)/2 = −2.5
    found = Gaussian([2.0, 3.0])(torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[[[3.0, 6.0]]]]))
    assert found.item() == -2.5


def test_lowered_far_from_zero_it_does_not_cancel() -> None:
    score, query, key = Gaussian(), torch.randn(2, 3, 5, 4) + 3e3, torch.randn(2, 3, 7, 4) + 3e3
    theirs = score.lower_key(key)
    torch.testing.assert_close(theirs.origin, key.mean(-2, keepdim=True))
    torch.testing.assert_close(score.between(score.lower_query(query, theirs.origin), theirs), score(query, key), rtol=1e-4, atol=1e-4)
    # about 0 the squares of 3000 leave nothing right
    plain = score.between(score.lower_query(query), score.lower_key(key, torch.zeros(2, 3, 1, 4)))
    assert (plain - score(query, key)).abs().max() > 1e-2


def test_the_centre_is_the_mean_of_the_visible_keys() -> None:
    key = torch.tensor([[[[1.0], [3.0], [100.0], [torch.nan]]]])
    score = Gaussian()
    assert score.origin(key[:, :, :3]).item() == pytest.approx(104 / 3)
    assert score.origin(key, torch.tensor([[[True, True, False, False]]])).item() == 2.0
    assert score.origin(key, torch.tensor([[[False] * 4]])).item() == 0.0
    assert score.origin(key[:, :, :0]) is None


@pytest.mark.parametrize("implementation", ["sdpa", "tiled", "formula"])
def test_a_learnt_bandwidth_learns(implementation: str) -> None:
    sigma = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    x, y = torch.tensor([[0.0], [1.0]]).double(), torch.tensor([[0.0], [1.0]]).double()
    found = attend(x[:1], x, y, score=Gaussian(sigma), implementation=implementation)
    found.sum().backward()
    # w = σ(−1/2σ²) = σ(−1/8) = 0.468791, dw/dσ = w(1 − w)/σ³ = 0.249026/8
    assert found.item() == pytest.approx(1 / (1 + math.exp(1 / 8)))
    assert sigma.grad.item() == pytest.approx(found.item() * (1 - found.item()) / 8)
    assert list(Gaussian(sigma).parameters()) == [sigma]
    assert not list(Gaussian(2.0).parameters())
    assert list(Gaussian(sigma.detach()).state_dict()) == ["sigma"]


@pytest.mark.parametrize("sigma", [0.1, [0.1, 0.3]])
def test_a_bandwidth_in_numbers_is_exact_in_every_type_and_no_tensor(sigma: float | list[float]) -> None:
    score, query, key = Gaussian(sigma), torch.randn(1, 1, 3, 2).double(), torch.randn(1, 1, 5, 2).double()
    units = (query[..., :, None, :] - key[..., None, :, :]) / torch.tensor(sigma, dtype=torch.float64)
    torch.testing.assert_close(score(query, key), -0.5 * units.square().sum(-1), rtol=1e-14, atol=0.0)
    assert not list(score.buffers())
    # a device without float64, which none of the type may reach
    assert score.to("meta", torch.float16)(query.half().to("meta"), key.half().to("meta")).dtype == torch.float16
    assert score(query, key).dtype == torch.float64


def test_the_bandwidth_is_positive() -> None:
    for sigma in (0.0, [1.0, -1.0], float("nan")):
        with pytest.raises(ArgumentError, match=r"^sigma must be > 0, got"):
            Gaussian(sigma)
    assert repr(Gaussian([1.0, 2.0])) == "Gaussian(sigma=[1.0, 2.0])"
