from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention import attend
from attent.attention.masks import Padding
from attent.ops import sdpa
from attent.ops.sdpa import products, twice_differentiable

B, H, TQ, TK, D = 2, 3, 5, 7, 4
TABLE = torch.rand(B, 1, TQ, TK, generator=torch.Generator().manual_seed(1)) < 0.7
TABLE[..., 0] = True


def make_inputs(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(B, H, length, D, dtype=dtype, requires_grad=True) for length in (TQ, TK, TK)]


@pytest.fixture(params=[0, 10**6], ids=["fused", "products"], autouse=True)
def short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(sdpa, "SHORT", request.param)
    return bool(request.param)


@pytest.mark.parametrize(
    ("mask", "causal"),
    [(None, False), (None, True), (TABLE, False), (torch.where(TABLE, 0.5, -torch.inf).double(), False)],
    ids=["none", "causal", "boolean", "bias"],
)
def test_first_derivatives_are_pytorchs_and_second_ones_right(mask: Tensor | None, causal: bool, short: bool) -> None:
    inputs = make_inputs()

    def attend_twice_differentiable(*tensors: Tensor) -> Tensor:
        return twice_differentiable(*tensors, mask, causal, 0.4)  # pyright: ignore[reportArgumentType]

    reference = F.scaled_dot_product_attention(*inputs, attn_mask=mask, is_causal=causal, scale=0.4)
    up = torch.randn_like(reference)
    actual, expected = (
        [context, *torch.autograd.grad(context, inputs, up)]
        for context in (attend_twice_differentiable(*inputs), reference)
    )
    torch.testing.assert_close(actual, expected, **({} if short else {"atol": 0.0, "rtol": 0.0}))
    assert torch.autograd.gradcheck(attend_twice_differentiable, inputs)
    assert torch.autograd.gradgradcheck(attend_twice_differentiable, inputs, fast_mode=True)


@pytest.mark.parametrize(
    "arguments", [{"mask": Padding(torch.tensor([7, 0]))}, {"score": "gaussian"}, {"score": "cosine"}]
)
def test_attend_has_second_derivatives_whatever_auto_chose(arguments: dict[str, Any]) -> None:
    assert torch.autograd.gradgradcheck(lambda *tensors: attend(*tensors, **arguments), make_inputs(), fast_mode=True)


def test_what_a_query_was_made_of_is_gone_through_once() -> None:
    inputs = make_inputs()
    results = []
    for implementation in ("sdpa", "reference"):
        context = attend(inputs[0], inputs[0].sin(), inputs[0].cos(), implementation=implementation)
        (first,) = torch.autograd.grad(context.square().sum(), inputs[0], create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), inputs[0])[0])
    torch.testing.assert_close(*results)


def test_in_16_bits() -> None:
    inputs = make_inputs(torch.bfloat16)
    (first,) = torch.autograd.grad(attend(*inputs).square().sum(), inputs[0], create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), inputs[1])
    assert second.isfinite().all()
    assert second.any()


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_goes_through_pytorchs_own() -> None:
    query, key, value = make_inputs(torch.float32)
    attention = partial(twice_differentiable, key=key[:1], value=value[:1], mask=None, causal=False, scale=0.5)
    actual = torch.vmap(lambda tensor: attention(tensor[None])[0])(query)
    expected = F.scaled_dot_product_attention(query, key[:1].expand_as(key), value[:1].expand_as(value), scale=0.5)
    torch.testing.assert_close(actual, expected)


def test_inputs_laid_out_otherwise_and_the_gradient_of_a_sum() -> None:
    inputs = [torch.randn(B, length, H, D, dtype=torch.float64, requires_grad=True) for length in (TQ, TK, TK)]
    transposed = [tensor.transpose(1, 2) for tensor in inputs]
    gradients = torch.autograd.grad(twice_differentiable(*transposed, None, True, 0.4).sum(), inputs)
    expected = torch.autograd.grad(F.scaled_dot_product_attention(*transposed, is_causal=True, scale=0.4).sum(), inputs)
    torch.testing.assert_close(gradients, expected)


LOWEST = torch.finfo(torch.float32).min
# the pairs of a tile, a factor on some queries, and what is added to the scores
LARGE: dict[str, tuple[int, float, Tensor | None]] = {
    "whole rows of the lowest bias": (
        2 * TQ * TK,
        1.0,
        torch.zeros(B, H, TQ, TK).index_fill(2, torch.tensor([1, 3]), LOWEST),
    ),
    "rows of one sequence": (TK, 1.0, torch.zeros(B, 1, TQ, TK).index_put((torch.tensor([1]),), torch.tensor(LOWEST))),
    "rows of one head": (10**6, 1.0, torch.zeros(1, H, TQ, TK).index_fill(1, torch.tensor([2]), LOWEST)),
    "every row": (2 * TQ * TK, 1.0, torch.full((1, 1, 1, 1), LOWEST)),
    "single entries": (10**6, 1.0, torch.zeros(TQ, TK).masked_fill(torch.eye(TQ, TK) > 0, LOWEST)[None, None]),
    "columns": (TK, 1.0, torch.zeros(B, 1, 1, TK).index_fill(3, torch.tensor([2]), LOWEST)),
    "a bias of 1e6": (TK, 1.0, torch.full((TQ, TK), 1e6)[None, None]),
    "scores of 1e3": (2 * TQ * TK, 1e3, None),
    "causal scores of 1e6": (TK, 1e6, None),
    "scores of 1e9": (10**6, 1e9, None),
}


@pytest.mark.parametrize("short", [0], indirect=True)
@pytest.mark.parametrize("name", LARGE)
def test_gradients_of_rows_with_large_scores(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tile, factor, bias), causal = LARGE[name], "causal" in name
    monkeypatch.setattr(sdpa, "TILE", tile)
    inputs = make_inputs(torch.float32)
    query, key, value = (tensor.detach() for tensor in inputs)
    query[:, 1:, ::2] *= factor
    inputs, up = [tensor.requires_grad_() for tensor in (query, key, value)], torch.randn(B, H, TQ, D)

    def gradients(function: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        term = None if bias is None else bias.to(dtype)
        context = function(*(tensor.to(dtype) for tensor in inputs), term, causal, 0.5)
        return [context, *torch.autograd.grad(context, inputs, up.to(dtype))]

    right, plain = gradients(products, torch.float64), gradients(products, torch.float32)
    for part, of_products, exact in zip(gradients(twice_differentiable, torch.float32), plain, right, strict=True):
        allowed = 3 * (of_products - exact).abs().max() + 1e-5 * exact.abs().max()
        assert (part - exact).abs().max() <= allowed


def test_a_bias_that_fills_rows_leaves_their_gradients_right_in_16_bits() -> None:
    inputs, bias = make_inputs(torch.bfloat16), torch.zeros(TQ, TK, dtype=torch.bfloat16)
    bias[2] = torch.finfo(torch.bfloat16).min
    context = attend(*inputs, bias=bias, implementation="sdpa")
    (dvalue,) = torch.autograd.grad(context, inputs[2], torch.ones_like(context))
    # every weight that is given is taken
    torch.testing.assert_close(dvalue.float().sum(-2), torch.full((B, H, D), float(TQ)), rtol=2e-2, atol=0.0)


def test_one_sequence_of_nan_leaves_the_gradients_of_another_right() -> None:
    inputs, bias = make_inputs(torch.float32), torch.zeros(TQ, TK)
    bias[2] = LOWEST
    with torch.no_grad():
        inputs[0][0, 0, 0] = torch.nan
    context = attend(*inputs, bias=bias, implementation="sdpa")
    (dvalue,) = torch.autograd.grad(context, inputs[2], torch.ones_like(context))
    assert dvalue[0, 0].isnan().any()
    torch.testing.assert_close(dvalue[1].sum(-2), torch.full((H, D), float(TQ)))
