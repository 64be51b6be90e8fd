"""The fused kernels beside the plain formula in float64, and what they promise of memory, order and hidden keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

# Triton interprets in Python, and these kernels are not among what coverage counts.
pytestmark = pytest.mark.no_cover


def spans(kind: str, batch: int, heads: int, queries: int, keys: int) -> tuple[Tensor, Tensor]:
    """The first key each query sees and the one behind the last, (B, H, Tq)."""
    at = torch.arange(queries, dtype=torch.int32)
    first, stop = torch.zeros_like(at), torch.full_like(at, keys)
    if kind == "causal":
        stop = (at + 1 + keys - queries).clamp(0, keys)
    if kind == "window":
        first, stop = (at - 3).clamp(min=0), (at + 2).clamp(max=keys)
    first, stop = (span.expand(batch, heads, queries).clone() for span in (first, stop))
    if kind == "lengths":
        stop[0], first[-1], stop[-1] = keys - 3, keys, 0
    if kind == "holes":
        first[:, :, 4:9], stop[:, :, 4:9] = keys, 0
        first[:, -1, 9:] = 5
    return first, stop


def sides(
    size: float = 1.0, queries: int = 19, keys: int = 21, width: int = 5, values: int = 7, of_v: int = 1
) -> list[Tensor]:
    torch.manual_seed(5)
    shapes = ((1, 2, queries, width), (1, 2, keys, width), (of_v, width), (1, 2, keys, values))
    query, key, v, value = (torch.randn(shape) for shape in shapes)
    return [query * size, key * size, v, value]


def plain(query: Tensor, key: Tensor, v: Tensor, value: Tensor, first: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
    scores = (torch.tanh(query[..., :, None, :] + key[..., None, :, :]) * v[:, None, None]).sum(-1)
    positions = torch.arange(key.shape[2])
    visible = (positions >= first[..., None]) & (positions < stop[..., None])
    filled = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    return filled.softmax(-1).masked_fill(~visible, 0.0) @ value, filled.logsumexp(-1).masked_fill(
        stop <= first, -torch.inf
    )


def all_of(
    attention: Any, inputs: list[Tensor], first: Tensor, stop: Tensor, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    """Contexts, log-sum-exps where there are any, and the gradients of everything."""
    torch.manual_seed(6)
    inputs = [tensor.to(device, dtype).requires_grad_() for tensor in inputs]
    context, sums = attention(*inputs, first.to(device), stop.to(device))
    sums = sums.masked_fill((stop <= first).to(device), 0.0)
    # numbers that every type holds
    up, of_sums = (torch.randn(tensor.shape).bfloat16().to(tensor) for tensor in (context, sums))
    gradients = torch.autograd.grad([context, sums], inputs, [up, of_sums])
    return [tensor.detach().cpu().double() for tensor in (context, sums, *gradients)]


def compare(inputs: list[Tensor], first: Tensor, stop: Tensor, device: torch.device) -> None:
    from attent.ops.tanh_score.triton import operators  # noqa: F401

    cpu = torch.device("cpu")
    exact = all_of(plain, inputs, first, stop, torch.float64, cpu)
    plains = all_of(plain, inputs, first, stop, torch.float32, cpu)
    actual = all_of(torch.ops.attent.tanh_attention, inputs, first, stop, torch.float32, device)
    for result, baseline, right in zip(actual, plains, exact, strict=True):
        assert (result - right).abs().max() <= 3 * (baseline - right).abs().max() + 2e-6 * right.abs().max() + 1e-6


@pytest.mark.parametrize(
    ("kind", "size"),
    [("causal", 60.0), ("window", 1.0), ("lengths", 1.0), ("holes", 60.0)],
)
def test_it_is_the_formula(device: torch.device, kind: str, size: float) -> None:
    compare(sides(size), *spans(kind, 1, 2, 19, 21), device)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 19, 3, 17), (17, 3, 1, 2)], ids=str)
def test_odd_shapes(device: torch.device, shape: tuple[int, int, int, int]) -> None:
    compare(sides(1.0, *shape, of_v=2), *spans("causal", 1, 2, *shape[:2]), device)


def test_slabs_and_wide_values_change_nothing(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    from attent.ops.tanh_score.triton import attention

    monkeypatch.setattr(attention, "SLAB", 1)
    monkeypatch.setattr(attention, "WIDEST", 16)
    compare(sides(values=19), *spans("window", 1, 2, 19, 21), device)


def test_a_second_run_gives_the_same_bits_and_scratch_memory_is_not_read(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, stop = spans("causal", 1, 2, 19, 21)
    once = all_of(torch.ops.attent.tanh_attention, sides(), first, stop, torch.float32, device)
    empty = torch.empty

    def filled(*shape: Any, **options: Any) -> Tensor:
        result = empty(*shape, **options)
        return result.fill_(float("nan")) if result.is_floating_point() else result

    monkeypatch.setattr(torch, "empty", filled)
    repeated = all_of(torch.ops.attent.tanh_attention, sides(), first, stop, torch.float32, device)
    assert all(map(torch.equal, once, repeated))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_values_of_16_bits_are_summed_in_32(device: torch.device, dtype: torch.dtype) -> None:
    inputs = [tensor.to(dtype).float() for tensor in sides()]
    first, stop = spans("causal", 1, 2, 19, 21)
    exact = all_of(plain, inputs, first, stop, torch.float64, torch.device("cpu"))
    actual = all_of(torch.ops.attent.tanh_attention, inputs, first, stop, dtype, device)
    for result, right in zip(actual, exact, strict=True):
        assert (result - right).abs().max() <= 3 * torch.finfo(dtype).eps * right.abs().max()


@pytest.mark.parametrize("empty", ["queries", "keys"])
def test_without_pairs_there_is_nothing(device: torch.device, empty: str) -> None:
    lengths = {"queries": 5, "keys": 7} | {empty: 0}
    inputs = [tensor.to(device).requires_grad_() for tensor in sides(**lengths)]
    first, stop = (span.to(device) for span in spans("whole", 1, 2, lengths["queries"], lengths["keys"]))
    context, _ = torch.ops.attent.tanh_attention(*inputs, first, stop)
    assert context.shape == (1, 2, lengths["queries"], 7)
    assert not context.any()
    for gradient in torch.autograd.grad(context.sum(), inputs):
        assert not gradient.any()
