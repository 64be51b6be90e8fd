"""Scores of tanh form and their gradients, beside the plain formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

# Triton interprets in Python, and these kernels are not among what coverage counts.
pytestmark = pytest.mark.no_cover

# (B, H, heads of v, Tq, Tk, D)
SHAPES = [(1, 1, 1, 1, 1, 1), (2, 2, 2, 5, 7, 11), (1, 2, 1, 35, 37, 19)]


def sides(device: torch.device, shape: tuple[int, ...], size: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, heads, of_v, queries, keys, width = shape
    shapes = ((batch, heads, queries, width), (batch, heads, keys, width), (of_v, width), (batch, heads, queries, keys))
    query, key, v, gradient = (torch.randn(shape).to(device) for shape in shapes)
    return query * size, key * size, v, gradient


def plain(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    return (torch.tanh(query[..., :, None, :] + key[..., None, :, :]) * v[:, None, None]).sum(-1)


def outcome(value: tuple[Tensor, ...], dtype: torch.dtype) -> list[Tensor]:
    *inputs, gradient = (tensor.detach().to(dtype).requires_grad_() for tensor in value)
    result = plain(*inputs)
    return [result.detach(), *torch.autograd.grad(result, inputs, gradient)]


def scores_and_gradients(inputs: tuple[Tensor, ...]) -> list[Tensor]:
    from attent.ops.tanh_score.triton import tiles

    return [tiles.scores(*inputs[:3]), *tiles.gradients(*inputs)]


def scales(query: Tensor, key: Tensor, v: Tensor, gradient: Tensor) -> list[Tensor]:
    """What the terms of each result sum to without their signs, a tanh and its slope being at most 1."""
    v, gradient = v.abs()[:, None], gradient.abs()
    per_key, per_query = gradient.sum(-2)[..., None] * v, gradient.sum(-1)[..., None] * v
    return [v.sum(-1, keepdim=True), per_query, per_key, gradient.sum().reshape(1, 1)]


@pytest.mark.parametrize("size", [1e-3, 1.0, 8.0, 1e3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scores_and_gradients_are_those_of_the_formula(
    device: torch.device, shape: tuple[int, ...], size: float
) -> None:
    inputs = sides(device, shape, size)
    exact, plains = outcome(inputs, torch.float64), outcome(inputs, torch.float32)
    for actual, baseline, right, scale in zip(
        scores_and_gradients(inputs), plains, exact, scales(*inputs), strict=True
    ):
        assert ((actual - right).abs() <= 3 * (baseline - right).abs().max() + 5e-7 * scale).all()


def test_one_wide_number_changes_nothing_elsewhere(device: torch.device) -> None:
    inputs = sides(device, (1, 1, 1, 35, 37, 5))
    inputs[0][0, 0, 33, 3], inputs[1][0, 0, 2, 4] = 45.0, -300.0
    for actual, right in zip(scores_and_gradients(inputs), outcome(inputs, torch.float64), strict=True):
        torch.testing.assert_close(actual.double(), right, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_row(device: torch.device, bad: float) -> None:
    inputs = sides(device, (1, 2, 1, 5, 7, 6))
    inputs[0][0, 1, 4, 2] = bad
    scores, dq, _, _ = scores_and_gradients(inputs)
    torch.testing.assert_close(scores, plain(*inputs[:3]), equal_nan=True, atol=1e-5, rtol=1e-5)
    assert dq[0, 0].isfinite().all()
    assert dq[0, 1, :4].isfinite().all()


@pytest.mark.parametrize("empty", [0, 3, 4])
def test_without_pairs_there_is_nothing(device: torch.device, empty: int) -> None:
    shape = [2, 2, 2, 5, 7, 3]
    shape[empty] = 0
    inputs = sides(device, tuple(shape))
    scores, *gradients = scores_and_gradients(inputs)
    assert scores.shape == inputs[3].shape
    for gradient, like in zip(gradients, inputs, strict=False):
        assert gradient.shape == like.shape
        assert not gradient.any()


def test_any_layout_in_memory_serves(device: torch.device) -> None:
    query, key, v, gradient = inputs = sides(device, (2, 2, 1, 5, 7, 4))
    transposed = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (query, key)]
    for actual, right in zip(
        scores_and_gradients((*transposed, v, gradient.mT.contiguous().mT)), scores_and_gradients(inputs), strict=True
    ):
        assert torch.equal(actual, right)


def test_a_second_run_gives_the_same_bits(device: torch.device) -> None:
    inputs = sides(device, (1, 2, 1, 35, 37, 5))
    for first, second in zip(scores_and_gradients(inputs), scores_and_gradients(inputs), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_are_summed_in_32(device: torch.device, dtype: torch.dtype) -> None:
    inputs: Any = tuple(tensor.to(dtype) for tensor in sides(device, (1, 2, 1, 5, 7, 6)))
    exact = outcome(inputs, torch.float64)
    for actual, right in zip(scores_and_gradients(inputs), exact, strict=True):
        assert actual.dtype == dtype
        assert (actual - right).abs().max() <= torch.finfo(dtype).eps * right.abs().max()


def test_one_number_by_hand(device: torch.device) -> None:
    from attent.ops.tanh_score.triton import tiles

    query, key = (
        torch.tensor([[[[1.0, -0.5]]]], device=device),
        torch.tensor([[[[0.5, 0.5], [-1.0, 1.5]]]], device=device),
    )
    v = torch.tensor([[2.0, 3.0]], device=device)
    # 2·tanh 1.5 + 3·tanh 0, 2·tanh 0 + 3·tanh 1
    torch.testing.assert_close(tiles.scores(query, key, v).cpu(), torch.tensor([[[[1.8102965, 2.2847826]]]]))


def test_what_is_wide_is_told_and_kept_finite(device: torch.device) -> None:
    from attent.ops.tanh_score.triton import tiles

    features = torch.zeros(1, 2, 3, 5, device=device)
    features[0, 1, 2, 3], features[0, 0, 1, 0], features[0, 0, 0, 0] = 1e3, float("nan"), tiles.WIDE
    laid = tiles.kernel_operand(features, 0.5)
    assert laid.narrow.tolist() == [[1, 0, 1], [1, 1, 0]]
    assert laid.powers[1].isfinite().all()
    assert laid.transposed.shape == (2, 6, 3)
    assert not laid.transposed[:, 5].any()
    # a pair of them multiplied is finite too
    maximum = (0.5 * torch.tensor(4 * tiles.WIDE).exp() + 0.5).square()
    assert maximum.isfinite()


def test_every_head_has_its_direction(device: torch.device) -> None:
    from attent.ops.tanh_score.triton import tiles

    v = torch.arange(3.0, device=device)[None]
    torch.testing.assert_close(tiles.directions(v, 2), torch.tensor([[0.0, 1.0, 2.0, 0.0]] * 2, device=device))


def test_blocks_are_powers_of_two_within_bounds(device: torch.device) -> None:
    from attent.ops.tanh_score.triton import tiles

    assert [tiles.power_of_two(size, 16, 64) for size in (1, 16, 17, 64, 65, 0)] == [16, 16, 32, 64, 64, 16]
