from __future__ import annotations

import pytest
import torch

from attent.regression import expansion
from attent.regression.expansion import REACH, Expansion
from attent.regression.kernels import KERNELS
from attent.regression.smoother import Smoother


def textbook(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.exp(-0.5 * (query[:, None] - key).square()) @ value


@pytest.mark.parametrize("middle", [0.0, -1e4])
@pytest.mark.parametrize("width", [0.01, 0.3, 9.0])
def test_the_sums_are_the_textbooks(middle: float, width: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "QUERIES", 101)
    key = middle + width * torch.randn(5003, dtype=torch.float64)
    value = torch.stack((torch.ones_like(key), (3 * key).sin(), torch.randn_like(key)), 1)
    query = middle + (width + 2) * torch.randn(307, dtype=torch.float64)
    asked = Expansion(key, value)
    assert asked.pays
    found, near = asked(query)
    expected = textbook(query, key, value)
    assert near.sum() > 200
    # as good as sums of so many numbers are, and as small as those may be of which few keys are seen
    torch.testing.assert_close(found[near], expected[near], rtol=1e-12, atol=1e-14 * len(key))
    shares, right = found[near, 1:] / found[near, :1], expected[near, 1:] / expected[near, :1]
    torch.testing.assert_close(shares, right, rtol=1e-10, atol=1e-10)


def test_those_far_from_every_key_are_told() -> None:
    key = torch.cat((torch.zeros(500), torch.full((500,), 100.0))).double()
    _, near = Expansion(key, key[:, None])(torch.tensor([0.0, 3.0, -3.0, 50.0, 100.0, 1e3, -1e17, 1e30, 97.0]).double())
    assert near.tolist() == [True, True, True, False, True, False, False, False, True]


def test_one_worked_by_hand() -> None:
    # keys 0 and 1, thirty times each: e^(-1/2) of what is one away, e^(-2) of what is two away
    key = torch.tensor([0.0, 1.0] * 30).double()
    found, near = Expansion(key, torch.stack((torch.ones(60).double(), key), 1))(torch.tensor([2.0]).double())
    assert near.item()
    assert found[0].tolist() == pytest.approx([30 * (0.1353352832366127 + 0.6065306597126334), 30 * 0.6065306597126334], rel=1e-14)


def test_keys_that_share_no_cells_do_not_pay() -> None:
    key = torch.arange(100).double()
    assert not Expansion(key, key[:, None]).pays


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_regression_is_the_same_with_it(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    key = torch.cat((torch.randn(3000), 40 + torch.randn(100))).double()[:, None]
    value = torch.stack((key[:, 0].sin(), 7 + key[:, 0]), 1).to(dtype)
    # near keys, between them, beyond them all
    query = torch.cat((torch.randn(400), torch.tensor([20.0, 21.0, 31.0, 36.0, 80.0, 1e3, -1e6])))[:, None].double()
    asked, calls = Smoother(key, value, KERNELS["gaussian"]), []
    monkeypatch.setattr(Expansion, "__call__", lambda self, some, plain=Expansion.__call__: calls.append(len(some)) or plain(self, some))
    found = asked(query)
    assert calls == [407]
    monkeypatch.setattr(Smoother, "_expands", lambda *arguments: False)
    expected = Smoother(key, value, KERNELS["gaussian"])(query)
    assert calls == [407]
    assert found.seen.all()
    assert found.mean.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(found.mean, expected.mean, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(3000, 2), (3000, 1)])
def test_other_kernels_and_more_features_do_without(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Expansion, "__call__", lambda self, some: pytest.fail("asked"))
    key = torch.randn(*shape, dtype=torch.float64)
    name = "gaussian" if shape[1] == 2 else "logistic"
    assert Smoother(key, key[:, :1], KERNELS[name])(key[:400]).seen.all()


def test_what_is_left_out_is_below_rounding() -> None:
    terms = expansion.TERMS
    first = 1.0
    for n in range(1, terms + 1):
        first *= REACH * expansion.RADIUS / n
    assert first < torch.finfo(torch.float64).eps / 16
