"""A score_mod by head and offset in attend's parts computes what it computed as a function of every pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import attent
from attent.integrations import flex_attention as module
from attent.integrations.offset_bias import OffsetBias, parts_of
from attent.testing import check_part

B, H, TQ, TK, D = 2, 3, 13, 19, 4
INFINITY = float("inf")


def mods(table: Tensor) -> dict[str, Callable[..., Tensor]]:
    table = table.to(torch.float64)
    return {
        "relative bias": lambda s, b, h, i, j: s + table[h, j - i + TQ],
        "of the head": lambda s, b, h, i, j: s + table[h, 0 * (j - i)],
        "soft cap": lambda s, b, h, i, j: 2 * torch.tanh(s / 2),
        "soft cap, bias and causal": lambda s, b, h, i, j: torch.where(
            i >= j, 2 * torch.tanh(s / 2) + table[h, j - i + TQ], -INFINITY
        ),
        "window": lambda s, b, h, i, j: torch.where((i - j < 5) & (j - i < 2), s - (i - j).abs(), -INFINITY),
        "window by head": lambda s, b, h, i, j: torch.where((i - j).abs() <= h, s, -INFINITY),
        "no key": lambda s, b, h, i, j: torch.where(i - j > 2 * TQ, s, -INFINITY),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("name", mods(torch.zeros(1)))
def test_it_computes_what_the_function_does(
    name: str, is_causal: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    table = torch.randn(H, TQ + TK, requires_grad=True)
    tensors = [torch.randn(B, H, size, D, dtype=dtype, requires_grad=True) for size in (TQ, TK, TK)]
    blocks = (
        attent.create_block_mask(lambda b, h, i, j: i + 4 >= j, None, None, TQ, TK, BLOCK_SIZE=4) if is_causal else None
    )
    score_mod = mods(table)[name]
    assert parts_of(score_mod, H, TQ, TK, dtype) is not None
    results: list[tuple[Tensor, ...]] = []
    for parts in (parts_of, lambda *arguments: None):
        monkeypatch.setattr(module, "parts_of", parts)
        context, lse = attent.flex_attention(*tensors, score_mod, blocks, return_lse=True)
        loss = context.sin().sum() + lse.masked_fill(lse.isinf(), 0.0).cos().sum()
        gradients = torch.autograd.grad(loss, [*tensors, table], materialize_grads=True)
        with torch.no_grad():
            torch.testing.assert_close(attent.flex_attention(*tensors, score_mod, blocks), context)
        results.append((context, lse, *gradients))
    tolerance: Any = {"atol": 2e-5, "rtol": 1e-4} if dtype == torch.float32 else {}
    for mine, right in zip(*results, strict=True):
        torch.testing.assert_close(mine, right, **tolerance)


def test_a_function_is_left_as_it_is() -> None:
    table = torch.randn(H, TQ + TK)
    for score_mod in (
        lambda s, b, h, i, j: torch.where((i - j) % 3 == 0, s, -INFINITY),
        lambda s, b, h, i, j: s + table[h, j - i + TQ] / 0,
        lambda s, b, h, i, j: s + table[h, j],
    ):
        assert parts_of(score_mod, H, TQ, TK, torch.float32) is None


def test_a_bias_that_is_the_same_for_all_heads_is_one_row() -> None:
    parts = parts_of(lambda s, b, h, i, j: s - (i - j).abs(), H, TQ, TK, torch.float32)
    assert parts is not None
    assert parts.position is not None
    assert parts.position.vector.shape == (1, TQ + TK - 1)
    assert parts.soft_cap is parts.mask is None


def test_it_is_a_position_as_the_others() -> None:
    check_part(OffsetBias(torch.randn(1, 2001, dtype=torch.float64), 1001))
    offsets = torch.arange(1 - TQ, TK)
    torch.testing.assert_close(OffsetBias(offsets[None].float(), TQ).bias_by_offset(offsets)[0], offsets.float())
