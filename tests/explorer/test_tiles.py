from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator

import pytest
import torch
from _machine import memory_growth
from torch import Tensor

from attent.attention.arguments import prepare
from attent.attention.attend import attend
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, UnknownNameError
from attent.explorer import tiles as tiles_file
from attent.explorer.scheduler import LRUCache, Scheduler
from attent.explorer.tiles import HeadView, TilePyramid, block_count, sampled_head_statistics
from attent.views.scene import LayerWeights


@pytest.fixture
def tiles() -> Iterator[TilePyramid]:
    pyramid = TilePyramid(Scheduler(), LRUCache())
    yield pyramid
    pyramid.scheduler.close()


def attended(queries: int, keys: int, **options: object) -> AttentionMap:
    query, key = torch.randn(2, 3, queries, 4), torch.randn(2, 3, keys, 4)
    return attend(query, key, key, return_map=True, **options)[1]


def joined(tiles: TilePyramid, view: HeadView, level: int, method: str) -> tuple[Tensor, set[str]]:
    """All tiles of a level side by side, and what is said of them."""
    down, across = (range(block_count(length, level + 8)) for length in view.shape)
    full = [[tiles.tile(view, level, y, x, method) for x in across] for y in down]
    assert all(part.is_exact == ("from" not in part.note) for strip in full for part in strip)
    values = torch.cat([torch.cat([part.values for part in strip], 1) for strip in full])
    return values, {part.note for strip in full for part in strip}


def pooled(dense: Tensor, level: int, method: str) -> Tensor:
    size = 1 << level
    of = torch.nn.functional.avg_pool2d if method == "mean" else torch.nn.functional.max_pool2d
    return of(dense[None, None], size, ceil_mode=True)[0, 0]


@pytest.mark.parametrize(
    ("queries", "keys", "options", "head"),
    [(700, 531, {}, None), (300, 900, {"normalizer": "sparsemax"}, 1), (601, 601, {"mask": "causal"}, None)],
)
def test_every_level_is_the_dense_map_made_small(
    tiles: TilePyramid, queries: int, keys: int, options: dict, head: int | None
) -> None:
    weights = attended(queries, keys, **options)
    view = HeadView("a", LayerWeights("a", weights, sequence=1), head)
    dense = weights.dense()[1].mean(0) if head is None else weights[1, head]
    for level in range(view.top_level + 1):
        for method in ("mean", "max"):
            actual, _ = joined(tiles, view, level, method)
            torch.testing.assert_close(actual, pooled(dense, level, method))
    assert max(block_count(queries, view.top_level), block_count(keys, view.top_level)) <= 256


def test_a_layer_of_numbers_serves_as_one_of_a_map(tiles: TilePyramid) -> None:
    weights = attended(300, 270)
    dense = HeadView("dense", LayerWeights("a", weights.dense(), sequence=1), None)
    of_map = HeadView("map", LayerWeights("a", weights, 1), None)
    torch.testing.assert_close(joined(tiles, dense, 1, "max")[0], joined(tiles, of_map, 1, "max")[0])


def test_what_is_made_of_some_rows_is_made_of_whole_rows(tiles: TilePyramid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles_file, "STRIP_WEIGHTS", 512 * 700 // 4)
    weights = attended(512, 700)
    part = tiles.tile(HeadView("a", LayerWeights("a", weights), 0), 2, 0, 0)
    assert part.note == "mean of 4 x 4 weights, from 1 row in 4"
    rows = weights[0, 0][2::4].repeat_interleave(4, 0)
    torch.testing.assert_close(part.values, pooled(rows, 2, "mean"))


def test_what_was_computed_is_not_computed_again(tiles: TilePyramid, monkeypatch: pytest.MonkeyPatch) -> None:
    view = HeadView("a", LayerWeights("a", attended(300, 300)), 0)
    before = tiles.tile(view, 0, 0, 0)
    monkeypatch.setattr(HeadView, "stream_rows", None)
    assert torch.equal(tiles.tile(view, 0, 0, 0).values, before.values)
    assert torch.equal(tiles.tile(view, 0, 0, 1).values, tiles.tile(view, 0, 0, 1).values)


def test_memory_stays_within_its_bound() -> None:
    tiles = TilePyramid(Scheduler(), LRUCache(bound=2**20))
    layer = LayerWeights("a", attended(700, 700))
    for head in (None, 0, 1, 2):
        for level in range(2):
            joined(tiles, HeadView("a", layer, head), level, "mean")
    assert tiles.cache.size <= 2**20
    tiles.scheduler.close()


def test_tiles_and_names_that_there_are_not(tiles: TilePyramid) -> None:
    layer = LayerWeights("a", attended(700, 400))
    view = HeadView("a", layer, 0)
    for level, y, x, message in (
        (3, 0, 0, "level must be from 0 to 2, got 3"),
        (-1, 0, 0, "level must be from 0 to 2, got -1"),
        (0, 3, 0, "y must be from 0 to 2 at level 0, got 3"),
        (1, 0, 1, "x must be from 0 to 0 at level 1, got 1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            tiles.tile(view, level, y, x)
    with pytest.raises(ArgumentError, match="head must be from 0 to 2, or mean, got 3"):
        HeadView("a", layer, 3)
    with pytest.raises(UnknownNameError, match="way of pooling"):
        tiles.tile(view, 0, 0, 0, "median")


@pytest.mark.slow
def test_twenty_thousand_tokens_are_seen_at_once_and_in_little_memory() -> None:
    query, key = torch.randn(2, 1, 12, 20_000, 64)
    view = HeadView("a", LayerWeights("a", AttentionMap.of(prepare(query, key, key[..., :0]))), 3)
    tiles, took = TilePyramid(Scheduler(), LRUCache()), []

    def read_tiles() -> None:
        # all that a screen shows, zoomed into the middle
        for level in range(view.top_level, -1, -1):
            middle = block_count(20_000, level + 8) // 2
            start = time.thread_time()
            for y, x in ((y, x) for y in range(middle, middle + 3) for x in range(middle, middle + 3)):
                if max(y, x) < block_count(20_000, level + 8):
                    tiles.tile(view, level, y, x)
            took.append(time.thread_time() - start)

    more = memory_growth(read_tiles)
    tiles.scheduler.close()
    # of a processor's time; each screen has up to nine tiles
    assert statistics.median(took) < 1
    if more is not None:
        assert more < 200


@pytest.mark.parametrize(("head", "mask"), [(None, None), (1, None), (2, "causal")])
def test_rows_and_columns_are_those_of_the_map(head: int | None, mask: str | None) -> None:
    weights = attended(23, 31, mask=mask)
    view = HeadView("a", LayerWeights("a", weights, sequence=1), head)
    dense = weights.dense()[1].mean(0) if head is None else weights[1, head]
    torch.testing.assert_close(view.row(5).values, dense[5:6])
    torch.testing.assert_close(view.column(7).values, dense[:, 7][None])
    torch.testing.assert_close(view.thumbnail().values, dense)


def test_of_a_long_text_some_queries_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles_file, "STRIP_WEIGHTS", 23 * 31 // 4)
    weights = attended(23, 31)
    part = HeadView("a", LayerWeights("a", weights), 0).column(7)
    assert (part.is_exact, part.note) == (False, "1 row in 8 was computed")
    torch.testing.assert_close(part.values[0, [4, 12, 20]], weights[0, 0, [4, 12, 20], 7])
    assert int(part.values.isnan().sum()) == 20
    monkeypatch.setattr(tiles_file, "THUMBNAIL_WEIGHTS", 23 * 31 // 2)
    assert HeadView("a", LayerWeights("a", weights), 0).thumbnail().note == "from 1 row in 4"


@pytest.mark.parametrize("head", [None, 0])
def test_of_however_long_a_text_one_query_is_told(head: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for constant in ("STRIP_WEIGHTS", "THUMBNAIL_WEIGHTS", "STATISTICS_WEIGHTS"):
        monkeypatch.setattr(tiles_file, constant, 1)
    computed: list[int] = []
    stream_rows = HeadView.stream_rows

    def counted(view: HeadView, rows: range) -> Iterator[tuple[range, torch.Tensor, int]]:
        computed.append(len(rows))
        return stream_rows(view, rows)

    monkeypatch.setattr(HeadView, "stream_rows", counted)
    weights = attended(23, 31)
    view = HeadView("a", LayerWeights("a", weights), head)
    dense = weights.dense()[0].mean(0) if head is None else weights[0, head]
    part = view.column(7)
    torch.testing.assert_close(part.values[0, 8], dense[8, 7])
    assert int(part.values.isfinite().sum()) == 1
    assert not view.thumbnail().is_exact
    assert computed == [1, 1]
    assert sampled_head_statistics(view.layer, is_self_attention=True)[1] == 16


def test_a_thumbnail_is_small() -> None:
    weights = attended(100, 193)
    part = HeadView("a", LayerWeights("a", weights), 0).thumbnail()
    torch.testing.assert_close(part.values, torch.nn.functional.avg_pool2d(weights[0, :1], 8, ceil_mode=True)[0])


def test_figures_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = LayerWeights("a", torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])[None])
    (result,) = sampled_head_statistics(layer, is_self_attention=True)[0]
    assert result["first"] == pytest.approx(1.5 / 3)
    assert result["previous"] == pytest.approx((0.5 + 0.25) / 3)
    assert result["same"] == pytest.approx((1 + 0.5 + 0.75) / 3)
    assert result["distance"] == pytest.approx((0.5 + 0.25) / 3)
    assert result["entropy"] == pytest.approx((math.log(2) - 0.25 * math.log(0.25) - 0.75 * math.log(0.75)) / 3)
    # one row speaks for all: the second
    monkeypatch.setattr(tiles_file, "STATISTICS_WEIGHTS", 1)
    (result,) = sampled_head_statistics(layer, is_self_attention=True)[0]
    assert (result["first"], result["previous"], result["same"]) == (0.5, 0.5, 0.5)


def test_figures_without_a_meaning_are_left_out() -> None:
    (single, *_) = sampled_head_statistics(LayerWeights("a", attended(5, 7)), is_self_attention=False)[0]
    assert [name for name, value in single.items() if value is None] == ["distance", "previous", "same"]
    (single,) = sampled_head_statistics(LayerWeights("a", -torch.ones(3, 3)), is_self_attention=True)[0]
    assert set(single.values()) == {None}
