"""Weights pooled by blocks, and averaged over heads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attent.attention.attend import attend
from attent.attention.masks import Causal
from attent.explorer.tiles import BlockPooler, block_count, mean_over_heads

METHODS = ("mean", "max")


def by_hand(dense: Tensor, level: int, method: str) -> Tensor:
    size = 1 << level
    parts = [strip.split(size, 1) for strip in dense.split(size, 0)]
    return torch.stack(
        [torch.stack([block.mean() if method == "mean" else block.max() for block in strip]) for strip in parts]
    )


def test_runs_of_a_length() -> None:
    assert [block_count(20_000, level) for level in (0, 1, 6, 7, 15)] == [20_000, 10_000, 313, 157, 1]


@pytest.mark.parametrize("level", [1, 5])
def test_rows_told_a_few_at_a_time_make_the_whole(level: int) -> None:
    dense = torch.rand(23, 37)
    pooled = BlockPooler(0, block_count(23, level), range(37), level, METHODS)
    for first in range(0, 23, 5):
        pooled.add(range(first, min(first + 5, 23)), dense[first : first + 5])
    for method in METHODS:
        torch.testing.assert_close(pooled.result(method), by_hand(dense, level, method))


def test_keys_that_are_not_told_weigh_nothing() -> None:
    dense = torch.zeros(8, 13)
    dense[:, 3:10] = torch.rand(8, 7) - 0.5
    pooled = BlockPooler(0, 4, range(13), 1, METHODS)
    pooled.add(range(8), dense[:, 3:10], 3)
    for method in METHODS:
        torch.testing.assert_close(pooled.result(method), by_hand(dense, 1, method))
    beyond = BlockPooler(0, 2, range(8, 12), 1, METHODS)
    beyond.add(range(4), torch.rand(4, 5), 0)
    assert not beyond.result("mean").any() and not beyond.result("max").any()


def test_of_some_rows_a_run_says_what_these_say_and_one_without_says_what_the_one_before_says() -> None:
    dense = torch.rand(16, 4)
    pooler, coarse = BlockPooler(0, 4, range(4), 2, ["mean"]), BlockPooler(0, 8, range(4), 1, ["max"])
    pooler.add(range(1, 16, 2), dense[1::2])
    coarse.add(range(2, 16, 4), dense[2::4])
    torch.testing.assert_close(pooler.result("mean"), by_hand(dense[1::2].repeat_interleave(2, 0), 2, "mean"))
    target = by_hand(dense[2::4].repeat_interleave(2, 0), 1, "max")  # rows 2, 6, 10, 14 are those of runs 1, 3, 5, 7
    torch.testing.assert_close(coarse.result("max"), target[[0, 0, 0, 1, 1, 2, 2, 3]])


@pytest.mark.parametrize("heads", [range(2, 3), range(5)])
def test_rows_of_several_heads_are_their_mean(heads: range) -> None:
    query, key = torch.randn(2, 5, 11, 3), torch.randn(2, 5, 13, 3)
    weights = attend(query, key, key, mask=Causal(), return_map=True)[1]
    result = torch.zeros(11, 13)
    with weights.tiles(range(1, 11, 2), heads, range(1, 2)) as tiles:
        for rows, target, start in mean_over_heads(tiles, 13, len(heads)):
            result[list(rows), start : start + target.shape[1]] = target
    torch.testing.assert_close(result[1::2], weights.dense()[1, heads.start : heads.stop, 1::2].mean(0))


@pytest.mark.parametrize(("step", "level", "count"), [(1, 1, 64), (2, 1, 3), (2, 3, 26), (4, 2, 3), (4, 2, 64)])
def test_some_keys_of_some_rows(step: int, level: int, count: int) -> None:
    dense = torch.rand(64, 50)
    pooled = BlockPooler(0, block_count(64, level), range(16, 41), level, METHODS)
    rows = range(step // 2, 64, step)
    for first in range(0, len(rows), count):
        sample = rows[first : first + count]
        pooled.add(sample, dense[sample.start : sample.stop : sample.step, 5:45], 5)
    target = dense[list(rows), 16:41].repeat_interleave(step, 0)
    for method in METHODS:
        torch.testing.assert_close(pooled.result(method), by_hand(target, level, method))
