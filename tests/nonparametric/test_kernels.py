import copy
import math

import pytest
import torch

from attent.attention import attend
from attent.errors import ArgumentError, UnknownNameError
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
