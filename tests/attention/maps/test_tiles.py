from __future__ import annotations

import pytest
import torch

from attent.attention import attend
from attent.attention.maps import tiles as tile_stream
from attent.attention.masks import Causal, Padding, Window
from attent.attention.scores import Additive


@pytest.mark.parametrize("score", ["scaled_dot", "gaussian", Additive(3, 3, 7), lambda query, key: query @ key.mT])
@pytest.mark.parametrize("tile", [50, 300, 900, 2**19])
@pytest.mark.parametrize("mask", [None, Causal() & Padding(torch.tensor([13, 0, 5, 11, 2]))])
@torch.no_grad()
def test_tiles_lie_side_by_side_and_make_the_whole(score, tile: int, mask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_stream, "CPU_TILE", tile)
    monkeypatch.setattr(tile_stream, "MIN_ROWS", 2)
    query, key = torch.randn(5, 2, 11, 3), torch.randn(5, 2, 13, 3)
    weights = attend(query, key, key, score=score, mask=mask, return_map=True)[1]
    whole, times = torch.zeros(weights.shape), torch.zeros(weights.shape)
    for result in tile_stream.tiles(weights):
        whole[(*result.index, result.columns)] = result.weights
        times[(*result.index, result.columns)] += 1
    torch.testing.assert_close(whole, weights.dense())
    assert times.max() == 1
    assert not whole[times == 0].any()


def test_keys_out_of_reach_cost_nothing() -> None:
    sequence = torch.randn(4096, 2)
    observed = 0
    for tile in tile_stream.tiles(
        attend(sequence, sequence, sequence, mask=Causal() & Window(100, 0), return_map=True)[1]
    ):
        observed += tile.weights.numel()
    assert observed < 4096 * 300


def test_tiles_do_not_grow_with_the_square_of_the_length() -> None:
    for length in (1024, 8192):
        sequence = torch.randn(1, 2, length, 2)
        sizes = [
            tile.weights.numel() for tile in tile_stream.tiles(attend(sequence, sequence, sequence, return_map=True)[1])
        ]
        assert max(sizes) <= max(tile_stream.CPU_TILE, tile_stream.MIN_ROWS * length)


@pytest.mark.parametrize("score", ["scaled_dot", Additive(3, 3, 7), lambda query, key: query @ key.mT])
@pytest.mark.parametrize("tile", [50, 2**19])
@torch.no_grad()
def test_of_some_rows_heads_and_sequences_only_these_are_computed(
    score, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tile_stream, "CPU_TILE", tile)
    monkeypatch.setattr(tile_stream, "MIN_ROWS", 2)
    query, key = torch.randn(3, 5, 17, 3), torch.randn(3, 5, 13, 3)
    weights = attend(query, key, key, score=score, mask=Causal(), bias=torch.randn(3, 5, 17, 13), return_map=True)[1]
    actual, cells = torch.zeros(weights.shape), 0
    with weights.tiles(range(2, 16, 3), range(1, 4), range(1, 2)) as tiles:
        for part in tiles:
            actual[(*part.index, part.columns)] = part.weights
            cells += part.weights.numel()
    expected = torch.zeros(weights.shape)
    expected[1, 1:4, 2:16:3] = weights.dense()[1, 1:4, 2:16:3]
    torch.testing.assert_close(actual, expected)
    assert 0 < cells <= 3 * 5 * 13


def test_of_no_rows_there_are_no_tiles() -> None:
    sequence = torch.randn(5, 2)
    with attend(sequence, sequence, sequence, return_map=True)[1].tiles(range(0)) as tiles:
        assert not list(tiles)
