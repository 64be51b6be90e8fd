"""Types, bits and tables of the kernels; test_native.py compares them with the formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

# Triton interprets in Python, and these kernels are not among what coverage counts.
pytestmark = pytest.mark.no_cover


def sides(device: torch.device, shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, heads, of_v, queries, keys, width = shape
    shapes = ((batch, heads, queries, width), (batch, heads, keys, width), (of_v, width), (batch, heads, queries, keys))
    query, key, v, gradient = (torch.randn(shape).to(device) for shape in shapes)
    return query, key, v, gradient


def plain(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    return (torch.tanh(query[..., :, None, :] + key[..., None, :, :]) * v[:, None, None]).sum(-1)


def outcome(value: tuple[Tensor, ...], dtype: torch.dtype) -> list[Tensor]:
    *inputs, gradient = (tensor.detach().to(dtype).requires_grad_() for tensor in value)
    result = plain(*inputs)
    return [result.detach(), *torch.autograd.grad(result, inputs, gradient)]


def scores_and_gradients(inputs: tuple[Tensor, ...]) -> list[Tensor]:
    from attent.ops.tanh_score.triton import tiles

    return [tiles.scores(*inputs[:3]), *tiles.gradients(*inputs)]


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
