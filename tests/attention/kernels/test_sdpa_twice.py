from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention import attend
from attent.attention.kernels import thresholds
from attent.attention.kernels.sdpa_twice import twice_differentiable
from attent.attention.masks import Padding

B, H, TQ, TK, D = 2, 3, 5, 7, 4
TABLE = torch.rand(B, 1, TQ, TK, generator=torch.Generator().manual_seed(1)) < 0.7
TABLE[..., 0] = True


def given(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(B, H, length, D, dtype=dtype, requires_grad=True) for length in (TQ, TK, TK)]


@pytest.fixture(params=[0, 10**6], ids=["fused", "products"], autouse=True)
def short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(thresholds, "SHORT", request.param)
    return bool(request.param)


@pytest.mark.parametrize("mask", [None, TABLE, torch.where(TABLE, 0.5, -torch.inf).double()], ids=["none", "boolean", "bias"])
@pytest.mark.parametrize("causal", [False, True])
def test_first_derivatives_are_pytorchs_and_second_ones_right(mask: Tensor | None, causal: bool, short: bool) -> None:
    if causal and mask is not None:
        mask, causal = TABLE & torch.ones(TQ, TK, dtype=torch.bool).tril(), False
    inputs = given()

    def ours(*tensors: Tensor) -> Tensor:
        return twice_differentiable(*tensors, mask, causal, 0.4)  # pyright: ignore[reportArgumentType]

    theirs = F.scaled_dot_product_attention(*inputs, attn_mask=mask, is_causal=causal, scale=0.4)
    up = torch.randn_like(theirs)
    found, expected = ([context, *torch.autograd.grad(context, inputs, up)] for context in (ours(*inputs), theirs))
    torch.testing.assert_close(found, expected, **({} if short else {"atol": 0.0, "rtol": 0.0}))
    assert torch.autograd.gradcheck(ours, inputs)
    assert torch.autograd.gradgradcheck(ours, inputs)


ARGUMENTS = [{}, {"mask": "causal"}, {"mask": Padding(torch.tensor([7, 0]))}, {"score": "gaussian"}, {"score": "cosine"}]


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_attend_has_second_derivatives_whatever_auto_chose(arguments: dict[str, Any]) -> None:
    assert torch.autograd.gradgradcheck(lambda *tensors: attend(*tensors, **arguments), given())


def test_what_a_query_was_made_of_is_gone_through_once() -> None:
    inputs = given()
    results = []
    for implementation in ("sdpa", "formula"):
        context = attend(inputs[0], inputs[0].sin(), inputs[0].cos(), implementation=implementation)
        (first,) = torch.autograd.grad(context.square().sum(), inputs[0], create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), inputs[0])[0])
    torch.testing.assert_close(*results)


def test_in_16_bits() -> None:
    inputs = given(torch.bfloat16)
    (first,) = torch.autograd.grad(attend(*inputs).square().sum(), inputs[0], create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), inputs[1])
    assert second.isfinite().all()
    assert second.any()


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_goes_through_pytorchs_own() -> None:
    query, key, value = given(torch.float32)
    found = torch.vmap(lambda some: twice_differentiable(some[None], key[:1], value[:1], None, False, 0.5)[0])(query)
    expected = F.scaled_dot_product_attention(query, key[:1].expand_as(key), value[:1].expand_as(value), scale=0.5)
    torch.testing.assert_close(found, expected)


def test_inputs_laid_out_otherwise_and_the_gradient_of_a_sum() -> None:
    inputs = [torch.randn(B, length, H, D, dtype=torch.float64, requires_grad=True) for length in (TQ, TK, TK)]
    turned = [tensor.transpose(1, 2) for tensor in inputs]
    found = torch.autograd.grad(twice_differentiable(*turned, None, True, 0.4).sum(), inputs)
    expected = torch.autograd.grad(F.scaled_dot_product_attention(*turned, is_causal=True, scale=0.4).sum(), inputs)
    torch.testing.assert_close(found, expected)
