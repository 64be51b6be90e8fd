from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention import attend, explain
from attent.attention.scores import Gaussian
from attent.errors import ArgumentError, ImplementationError


def test_distances_alone_count_in_units_of_each_features_bandwidth() -> None:
    score, query, key = Gaussian(0.7), torch.randn(2, 3, 5, 3), torch.randn(2, 3, 11, 3)
    scores = score(query, key)
    torch.testing.assert_close(score(query + 3.0, key + 3.0), scores, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(score(key, query).mT, scores)
    torch.testing.assert_close(scores, -torch.cdist(query, key).square() / (2 * 0.7**2))
    assert score(query, query).diagonal(0, -2, -1).count_nonzero() == 0
    sigma = torch.tensor([0.5, 1.0, 3.0])
    torch.testing.assert_close(Gaussian(sigma.tolist())(query, key), Gaussian()(query / sigma, key / sigma))
    # features 2 and 6 apart in units of σ = 2 and 3: −(1² + 2²)/2 = −2.5
    scores = Gaussian([2.0, 3.0])(torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[[[3.0, 6.0]]]]))
    assert scores.item() == -2.5
    for bandwidth in (0.0, [1.0, -1.0], float("nan")):
        with pytest.raises(ArgumentError, match=r"^sigma must be > 0, got"):
            Gaussian(bandwidth)


def test_lowered_far_from_zero_it_does_not_cancel() -> None:
    score, query, key = Gaussian(), torch.randn(2, 3, 5, 4) + 3e3, torch.randn(2, 3, 7, 4) + 3e3
    lowered, expected = score.lower_key(key), score(query, key)
    torch.testing.assert_close(lowered.center, key.mean(-2, keepdim=True))
    actual = score.score_lowered(score.lower_query(query, lowered.center), lowered)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    # about 0 the squares of 3000 leave nothing right
    plain = score.score_lowered(score.lower_query(query), score.lower_key(key, torch.zeros(2, 3, 1, 4)))
    assert (plain - expected).abs().max() > 1e-2


def test_the_centre_is_the_mean_of_the_visible_keys() -> None:
    key = torch.tensor([[[[1.0], [3.0], [100.0], [torch.nan]]]])
    score = Gaussian()
    assert score.center(key[:, :, :3]).item() == pytest.approx(104 / 3)
    assert score.center(key, torch.tensor([[[True, True, False, False]]])).item() == 2.0
    assert score.center(key, torch.tensor([[[False] * 4]])).item() == 0.0
    assert score.center(key[:, :, :0]) is None


@pytest.mark.parametrize("implementation", ["sdpa", "tiled", "reference"])
def test_a_learnt_bandwidth_learns(implementation: str) -> None:
    sigma = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    x, y = torch.tensor([[0.0], [1.0]]).double(), torch.tensor([[0.0], [1.0]]).double()
    output = attend(x[:1], x, y, score=Gaussian(sigma), implementation=implementation)
    output.sum().backward()
    # w = σ(−1/2σ²) = σ(−1/8) = 0.468791, dw/dσ = w(1 − w)/σ³ = 0.249026/8
    assert output.item() == pytest.approx(1 / (1 + math.exp(1 / 8)))
    assert sigma.grad.item() == pytest.approx(output.item() * (1 - output.item()) / 8)
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


# The features are drawn when the file is read, before any test is seeded.
DICE = torch.Generator().manual_seed(0)


def spread(shape: tuple[int, ...], positions: dict[tuple[int, int], float], middle: float = 0.0) -> Tensor:
    """Features about a middle, those of some tokens (head, token) elsewhere."""
    features = middle + torch.randn(shape, generator=DICE)
    for (head, token), position in positions.items():
        features[:, head, token] += position
    return features


FAR: dict[str, tuple[Tensor, Tensor]] = {
    "one outlying key": (spread((2, 4, 5, 2), {}), spread((2, 4, 11, 2), {(2, 3): -1e6})),
    "one outlying key, far from 0": (spread((2, 4, 5, 2), {}, 1e3), spread((2, 4, 11, 2), {(0, 3): -1.1e4}, 1e3)),
    "one outlying query": (spread((2, 4, 5, 2), {(1, 0): 300.0}), spread((2, 4, 11, 2), {(1, 7): 300.0})),
    "two clusters": (
        spread((2, 4, 5, 3), {(0, 0): 1e4, (0, 2): 1e4}),
        spread((2, 4, 11, 3), {(0, token): 1e4 for token in range(6)}),
    ),
    "shared keys": (spread((2, 4, 5, 2), {}, 50.0), spread((2, 2, 11, 2), {(1, 3): -1e3}, 50.0)),
    "wide features": (20 * spread((2, 4, 5, 33), {}), 20 * spread((2, 4, 11, 33), {})),
}


def outcome(case: str, implementation: str, dtype: torch.dtype, **arguments: Any) -> list[Tensor]:
    query, key = FAR[case]
    value = torch.sin(torch.arange(key.numel() // key.shape[-1] * 3.0)).view(*key.shape[:3], 3)
    sigma = torch.tensor([0.7, 1.5, *[1.0] * (key.shape[-1] - 2)])
    leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in (query, key, value, sigma)]
    context = attend(
        *leaves[:3], score=Gaussian(nn.Parameter(leaves[3].detach())), implementation=implementation, **arguments
    )
    return [context, *torch.autograd.grad(context.sin().sum(), leaves[:3])]


@pytest.mark.parametrize(
    ("arguments", "implementation"),
    [
        ({}, "tiled"),
        ({"mask": "causal"}, "auto"),
        ({"lengths": torch.tensor([9, 11])}, "auto"),
        ({"dropout": 0.2, "seed": 3}, "tiled"),
    ],
    ids=str,
)
@pytest.mark.parametrize("case", FAR)
def test_far_features_keep_their_digits(case: str, arguments: dict[str, Any], implementation: str) -> None:
    right = outcome(case, "reference", torch.float64, **arguments)
    plain = outcome(case, "reference", torch.float32, **arguments)
    for part, of_formula, exact in zip(
        outcome(case, implementation, torch.float32, **arguments), plain, right, strict=True
    ):
        allowed = 3 * (of_formula - exact).abs().max() + 2e-6 * exact.abs().max()
        assert (part - exact).abs().max() <= allowed


@pytest.mark.parametrize("implementation", ["auto", "tiled"])
@pytest.mark.parametrize(("dtype", "far"), [(torch.float32, -1e6), (torch.float64, -1e9)])
def test_one_key_too_far_takes_no_digits_of_the_rest(implementation: str, dtype: torch.dtype, far: float) -> None:
    # e^0, e^{−1/2} and e^{−2} over their sum
    key = torch.tensor([[0.0], [1.0], [2.0], [far]], dtype=dtype)
    query, value = torch.zeros(1, 1, dtype=dtype), torch.eye(4, dtype=dtype)
    arguments = {"score": "gaussian", "implementation": implementation, "return_map": True}
    context, weights = attend(query, key, value, **arguments)
    expected = torch.tensor([[0.574097, 0.348207, 0.077696, 0.0]], dtype=dtype)
    torch.testing.assert_close(context, expected, rtol=1e-5, atol=1e-6)
    expected = torch.exp(-torch.tensor([[0.0, 0.5, 2.0, torch.inf]], dtype=dtype))
    torch.testing.assert_close(context, expected / expected.sum())
    torch.testing.assert_close(weights.dense(), context)


def test_the_dot_form_serves_what_lies_near_the_mean_and_declines_what_does_not() -> None:
    query, key = torch.randn(1, 1, 5, 4) + 1e3, torch.randn(1, 1, 7, 4) + 1e3
    assert explain(query, key, key, score="gaussian").chosen == "sdpa"
    key[..., 3, :] = 1.1e3
    assert explain(query, key, key, score="gaussian").reasons["sdpa"] == "score DistantGaussian has no dot form"
    with pytest.raises(ImplementationError, match="DistantGaussian"):
        attend(query, key, key, score="gaussian", implementation="sdpa")
    # float64 has digits enough, and on other devices nobody looks
    assert explain(query.double(), key.double(), key.double(), score="gaussian").chosen == "sdpa"
    query, key = query.to("meta"), key.to("meta")
    assert explain(query, key, key, score="gaussian").chosen == "sdpa"


@pytest.mark.parametrize("offset", [30.0, 1e6])
def test_far_features_have_second_derivatives(offset: float) -> None:
    query, key = torch.randn(1, 1, 3, 2), torch.randn(1, 1, 4, 2)
    key[..., 1, :] = offset

    def second(dtype: torch.dtype, implementation: str) -> Tensor:
        leaf = query.to(dtype).requires_grad_()
        context = attend(leaf, key.to(dtype), key.to(dtype), score="gaussian", implementation=implementation)
        (first,) = torch.autograd.grad(context[..., 0].sum(), leaf, create_graph=True)
        return torch.autograd.grad(first.square().sum(), leaf)[0].double()

    torch.testing.assert_close(second(torch.float32, "tiled"), second(torch.float64, "reference"), rtol=1e-3, atol=1e-4)
