from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import attend, explain, prepare
from attent.attention.backends import row_tiles, sdpa_dropout
from attent.attention.masks import Causal, Padding, PerHead, Window
from attent.attention.scores import Additive, Gaussian
from attent.ops import native

B, H, TQ, TK, D = 2, 3, 11, 13, 4
dice = torch.Generator().manual_seed(4)
BIAS = torch.randn(1, H, TQ, TK, dtype=torch.float64, generator=dice)
BIAS[..., 3] = -torch.inf
CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "causal": {"mask": "causal"},
    "lengths": {"lengths": torch.tensor([13, 0]), "query_start": 0},
    "by head": {"mask": PerHead([Causal(), Window(2, 0), Window(0, 1)]) & Padding(torch.tensor([5, 13]))},
    "a bias": {"bias": BIAS, "mask": "causal"},
    "a bias of keys": {"bias": BIAS[:, :1, :1]},
    "a table": {"mask": torch.rand(B, 1, TQ, TK, generator=dice) < 0.5},
    "gaussian": {"score": Gaussian()},
    "seed in a tensor": {"seed": torch.tensor(9)},
}


@pytest.fixture(params=[1, 40, 300, 10**6])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdpa_dropout, "CHUNK", request.param)


@pytest.fixture(params=["compiled", "plain"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("no extension: attent was installed without a compiler")


def given(dtype: torch.dtype = torch.float64, key_heads: int = H) -> list[Tensor]:
    return [
        torch.randn(B, heads, length, D, dtype=dtype, requires_grad=True) for heads, length in ((H, TQ), (key_heads, TK), (key_heads, TK))
    ]


def outcome(tensors: list[Tensor], implementation: str, **arguments: Any) -> list[Tensor]:
    context = attend(*tensors, implementation=implementation, **{"dropout": 0.3, "seed": 5, **arguments})
    return [context, *torch.autograd.grad(context.sin().sum(), tensors)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kept", [0, 4], ids=["computed again", "kept"])
@pytest.mark.usefixtures("chunk")
def test_it_is_the_formula(name: str, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tiles, "WHOLE", kept)
    tensors = given(key_heads=1)
    torch.testing.assert_close(outcome(tensors, "dropped", **CASES[name]), outcome(tensors, "formula", **CASES[name]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.usefixtures("compiled", "chunk")
def test_in_the_extensions_type(dtype: torch.dtype) -> None:
    tensors = given(dtype)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    close = 1e-5 if dtype == torch.float32 else 4e-2
    for found, right in zip(outcome(tensors, "dropped", mask="causal"), outcome(exact, "formula", mask="causal"), strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), right, atol=close, rtol=close)


def test_second_derivatives() -> None:
    tensors = [torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    arguments: dict[str, Any] = {"dropout": 0.4, "seed": 3, "mask": "causal", "implementation": "dropped"}
    assert torch.autograd.gradgradcheck(lambda *some: attend(*some, **arguments), tensors)


def test_only_what_is_wanted_is_differentiated() -> None:
    query, key, value = given()
    (found,) = torch.autograd.grad(attend(query, key.detach(), value.detach(), dropout=0.3, seed=5).sum(), query)
    torch.testing.assert_close(
        found, torch.autograd.grad(attend(query, key, value, dropout=0.3, seed=5, implementation="formula").sum(), query)[0]
    )


def test_auto_takes_it_and_says_why_not() -> None:
    tensors = given()
    assert explain(*tensors, dropout=0.1, seed=1).chosen == "dropped"
    for arguments, reason in (
        ({"dropout": 0.0}, "it serves dropout alone"),
        ({"score": Additive(D, D, 5)}, "score Additive has no dot form"),
        ({"normalizer": "sparsemax"}, "its normalizer is softmax, not Sparsemax"),
        ({"soft_cap": 2.0}, "it has no soft cap"),
        ({"position": "alibi"}, "it has no bias of position, which Alibi adds"),
        ({"bias": BIAS.clone().requires_grad_()}, "it has no gradient for a bias"),
    ):
        together: dict[str, Any] = {"dropout": 0.1, "seed": 1, **arguments}
        assert sdpa_dropout.unsupported(prepare(*tensors, **together).call) == reason


def test_transforms_of_functions_go_another_way() -> None:
    tensors = [tensor.detach() for tensor in given()]

    def loss(query: Tensor, implementation: str) -> Tensor:
        return attend(query, *tensors[1:], dropout=0.3, seed=5, implementation=implementation).sin().sum()

    found, expected = (torch.func.grad(loss)(tensors[0], name) for name in ("auto", "formula"))
    torch.testing.assert_close(found, expected)


def test_nothing_to_attend_to() -> None:
    query, key, value = given()
    assert attend(query, key[:, :, :0], value[:, :, :0], dropout=0.1, seed=1).count_nonzero() == 0
    assert attend(query[:, :, :0], key, value, dropout=0.1, seed=1).shape == (B, H, 0, D)


def test_no_table_of_all_pairs_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdpa_dropout, "CHUNK", 200)
    monkeypatch.setattr(row_tiles, "WHOLE", 0)
    largest: list[int] = []

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):  # pyright: ignore[reportAttributeAccessIssue]
        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            result = function(*arguments, **(named or {}))
            largest.extend(one.numel() for one in (result if isinstance(result, tuple | list) else [result]) if isinstance(one, Tensor))
            return result

    tensors = [torch.randn(1, 2, 64, D, requires_grad=True) for _ in range(3)]
    with Sizes():
        attend(*tensors, dropout=0.1, seed=1, mask="causal").sum().backward()
    assert max(largest) < 2 * 64 * 64 / 4


def test_one_number_by_hand() -> None:
    # of two equal weights one is dropped by a seed that drops it alone, and the other doubled: 1/2 · 2 · its value
    key, value = torch.zeros(1, 1, 2, 1), torch.tensor([[[[3.0], [5.0]]]])
    found = {round(float(attend(key[:, :, :1], key, value, dropout=0.5, seed=seed)), 4) for seed in range(20)}
    assert found == {0.0, 3.0, 5.0, 8.0}
