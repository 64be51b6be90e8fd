from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import attend, prepare
from attent.attention.backends import bands, sdpa, select
from attent.attention.base import Mask
from attent.attention.masks import Blocks, Causal, Documents, Padding, PerHead, Prefix, Selected, Window
from attent.attention.scores import Gaussian

B, H, T, D = 2, 3, 61, 4
dice = torch.Generator().manual_seed(2)
MASKS: dict[str, Mask] = {
    "window": Window(5, 0),
    "window & padding": Window(5, 2) & Padding(torch.tensor([T, 23])),
    "documents": Documents(torch.arange(T)[None].expand(B, -1) // 7),
    "prefix": Prefix(4),
    "blocks": Blocks(torch.rand(B, 1, 13, 13, generator=dice) < 0.1, 5),
    "blocks | window": Blocks(torch.rand(13, 13, generator=dice) < 0.1, 5) | Window(2, 0),
    "selected & causal": Selected(torch.randint(-1, T, (T, 3), generator=dice)) & Causal(),
    "by head": PerHead([Window(1, 0), Window(4, 4), Window(0, 7)]),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "MANY", 1)
    monkeypatch.setattr(bands, "LEAST", 40)
    monkeypatch.setattr(bands, "ROWS", 1)
    monkeypatch.setattr(bands, "GATHERED_ROWS", 4)


def make_inputs(dtype: torch.dtype = torch.float64, value_width: int = D) -> list[Tensor]:
    return [torch.randn(B, H, T, width, dtype=dtype, requires_grad=True) for width in (D, D, value_width)]


def outcome(tensors: list[Tensor], implementation: str, **arguments: Any) -> list[Tensor]:
    context = attend(*tensors, implementation=implementation, **arguments)
    return [context, *torch.autograd.grad(context.sin().sum(), tensors)]


@pytest.mark.parametrize("name", MASKS)
def test_it_is_the_formula(name: str) -> None:
    mask, tensors = MASKS[name], make_inputs(value_width=(2, D, 9)[[*MASKS].index(name) % 3])
    assert sdpa.sparse_bands(prepare(*tensors, mask=mask).call) is not None
    torch.testing.assert_close(outcome(tensors, "sdpa", mask=mask), outcome(tensors, "reference", mask=mask))


def test_gradients_of_rows_with_large_scores() -> None:
    tensors = [tensor.detach().float() for tensor in make_inputs()]
    tensors[0][:, :, 7:19] *= 1e6
    tensors = [tensor.requires_grad_() for tensor in tensors]
    bias = torch.zeros(B, 1, T, T)
    bias[1, :, 30:32] = torch.finfo(torch.float32).min
    joint: dict[str, Any] = {"mask": Window(5, 0), "bias": bias}
    assert sdpa.sparse_bands(prepare(*tensors, **joint).call) is not None
    actual, plain = (outcome(tensors, implementation, **joint) for implementation in ("sdpa", "reference"))
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    right = outcome(exact, "reference", mask=Window(5, 0), bias=bias.double())
    for part, of_formula, expected in zip(actual, plain, right, strict=True):
        allowed = 3 * (of_formula - expected).abs().max() + 1e-5 * expected.abs().max()
        assert (part - expected).abs().max() <= allowed


def test_scores_with_a_bias_of_the_key_and_biases_of_pairs() -> None:
    bias, tensors = torch.randn(1, H, T, T, dtype=torch.float64), make_inputs()
    bias[:, :, 3], bias[..., 9] = -torch.inf, -torch.inf
    terms = {"score": Gaussian()}, {"bias": bias}, {"bias": bias[:, :1, :1]}, {"lengths": torch.tensor([T, 9])}
    for arguments in terms:
        joint: dict[str, Any] = {"mask": Window(5, 0), **arguments}
        torch.testing.assert_close(outcome(tensors, "sdpa", **joint), outcome(tensors, "reference", **joint))


def test_rows_that_see_nothing_are_zero_and_hidden_nan_stays_hidden() -> None:
    tensors = make_inputs()
    for tensor in tensors[1:]:
        tensor.data[1, :, 23:] = torch.nan
    context, *gradients = outcome(tensors, "sdpa", mask=Window(5, 2), lengths=torch.tensor([T, 23]), query_start=0)
    assert context[1, :, 29:].count_nonzero() == 0
    assert all(torch.isfinite(tensor).all() for tensor in (context, *gradients))


@pytest.mark.parametrize("blocks", [None, Blocks(torch.eye(3) > 0, 5)], ids=["padding", "blocks"])
def test_second_derivatives(blocks: Mask | None) -> None:
    mask = Window(2, 0) & Padding(torch.tensor([13, 5])) if blocks is None else blocks | Window(0, 1)
    tensors = [torch.randn(2, 1, 13, 2, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    assert sdpa.sparse_bands(prepare(*tensors, mask=mask).call) is not None

    def context(*inputs: Tensor) -> Tensor:
        return attend(*inputs, mask=mask, implementation="sdpa")

    assert torch.autograd.gradgradcheck(context, tensors, fast_mode=True)


def test_in_16_bits_what_bands_share_is_summed_in_32() -> None:
    tensors = make_inputs(torch.bfloat16)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    actual, right = outcome(tensors, "sdpa", mask=Window(9, 0)), outcome(exact, "reference", mask=Window(9, 0))
    assert {part.dtype for part in actual} == {torch.bfloat16}
    torch.testing.assert_close([part.double() for part in actual], right, atol=3e-2, rtol=3e-2)


def test_the_pairs_that_a_mask_hides_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    original = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

    def counting(query: Tensor, key: Tensor, *arguments: Any, **named: Any) -> Any:
        done.append(query.shape[2] * key.shape[2])
        return original(query, key, *arguments, **named)

    monkeypatch.setattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", counting)
    with torch.no_grad():
        attend(*make_inputs(), mask=Window(2, 0))
    assert sum(done) <= 2 * bands.WASTE * T * 3


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_what_it_leaves_to_pytorch() -> None:
    tensors = make_inputs()
    for arguments in ({}, {"mask": "causal"}, {"mask": Window(50, 0)}):
        assert sdpa.sparse_bands(prepare(*tensors, **arguments).call) is None
    bias = torch.zeros(T, T, dtype=torch.float64, requires_grad=True)
    assert sdpa.sparse_bands(prepare(*tensors, mask=Window(5, 0), bias=bias).call) is None
    mapped = torch.func.vmap(lambda *inputs: attend(*inputs, mask=Window(5, 0)))(
        *(tensor.detach() for tensor in tensors)
    )
    torch.testing.assert_close(mapped, attend(*tensors, mask=Window(5, 0)))
