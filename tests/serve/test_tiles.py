from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from attent.attention.attend import attend
from attent.attention.call import prepare
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, UnknownNameError
from attent.experiments.benchmarking.memory import grown
from attent.serve import tiles as tiles_file
from attent.serve.lru_cache import Kept
from attent.serve.pooling import runs
from attent.serve.scheduler import Turns
from attent.serve.tiles import Sheet, Tiles
from attent.views.scene import Layer


@pytest.fixture
def tiles() -> Iterator[Tiles]:
    made = Tiles(Turns(), Kept())
    yield made
    made.turns.close()


def attended(queries: int, keys: int, **how: object) -> AttentionMap:
    query, key = torch.randn(2, 3, queries, 4), torch.randn(2, 3, keys, 4)
    return attend(query, key, key, return_map=True, **how)[1]


def joined(tiles: Tiles, sheet: Sheet, level: int, how: str) -> tuple[Tensor, set[str]]:
    """All tiles of a level side by side, and what is said of them."""
    down, across = (range(runs(length, level + 8)) for length in sheet.shape)
    every = [[tiles.tile(sheet, level, y, x, how) for x in across] for y in down]
    assert all(part.exact == ("until" not in part.note) for strip in every for part in strip)
    return torch.cat([torch.cat([part.values for part in strip], 1) for strip in every]), {part.note for strip in every for part in strip}


def pooled(dense: Tensor, level: int, how: str) -> Tensor:
    size = 1 << level
    of = torch.nn.functional.avg_pool2d if how == "mean" else torch.nn.functional.max_pool2d
    return of(dense[None, None], size, ceil_mode=True)[0, 0]


@pytest.mark.parametrize("how", ["mean", "max"])
@pytest.mark.parametrize("head", [None, 1])
@pytest.mark.parametrize(
    ("queries", "keys", "made"), [(700, 531, {}), (300, 900, {"normalizer": "sparsemax"}), (601, 601, {"mask": "causal"})]
)
def test_every_level_is_the_dense_map_made_small(tiles: Tiles, how: str, head: int | None, queries: int, keys: int, made: dict) -> None:
    weights = attended(queries, keys, **made)
    sheet = Sheet("a", Layer("a", weights, sequence=1), head)
    dense = weights.dense()[1].mean(0) if head is None else weights[1, head]
    for level in range(sheet.top + 1):
        found, _ = joined(tiles, sheet, level, how)
        torch.testing.assert_close(found, pooled(dense, level, how))
    assert max(runs(queries, sheet.top), runs(keys, sheet.top)) <= 256


def test_a_layer_of_numbers_serves_as_one_of_a_map(tiles: Tiles) -> None:
    weights = attended(300, 270)
    dense = Sheet("dense", Layer("a", weights.dense(), sequence=1), None)
    torch.testing.assert_close(joined(tiles, dense, 1, "max")[0], joined(tiles, Sheet("map", Layer("a", weights, 1), None), 1, "max")[0])


@pytest.mark.parametrize("head", [None, 2])
@pytest.mark.parametrize("how", ["mean", "max"])
def test_what_takes_long_is_told_of_some_rows_and_then_exactly(
    tiles: Tiles, head: int | None, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles_file, "AT_ONCE", 60_000)
    monkeypatch.setattr(tiles_file, "WHOLE", 60_000)
    monkeypatch.setattr(tiles_file, "STEP", 30_000)
    monkeypatch.setattr(tiles_file, "BASE", 200 * 200)
    weights = attended(1300, 1200)
    sheet = Sheet("a", Layer("a", weights, 0), head)
    dense = weights.dense()[0].mean(0) if head is None else weights[0, head]
    assert (sheet.base, sheet.top) == (3, 3)
    for level in (3, 1):
        found, said = joined(tiles, sheet, level, how)
        assert any("from 1 row in" in note for note in said)
        assert (found - pooled(dense, level, how)).abs().max() > 1e-4
        assert tiles.turns.settle()
        found, said = joined(tiles, sheet, level, how)
        assert len(said) == 1
        torch.testing.assert_close(found, pooled(dense, level, how))
    first, _ = joined(tiles, sheet, 0, how)
    torch.testing.assert_close(first, dense)


def test_what_is_made_of_some_rows_is_made_of_whole_rows(tiles: Tiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles_file, "AT_ONCE", 512 * 700 // 4)
    monkeypatch.setattr(tiles_file, "WHOLE", 512 * 700 // 4)
    weights = attended(512, 700)
    part = tiles.tile(Sheet("a", Layer("a", weights), 0), 2, 0, 0)
    assert part.note == "mean of 4 x 4 weights, from 1 row in 4 until the exact one is computed"
    rows = weights[0, 0][2::4].repeat_interleave(4, 0)
    torch.testing.assert_close(part.values, pooled(rows, 2, "mean"))


def test_what_is_said_of_the_numbers(tiles: Tiles) -> None:
    layer = Layer("a", attended(300, 300))
    notes = [
        tiles.tile(Sheet("a", layer, head), level, 0, 0, how).note
        for head, level, how in ((0, 0, "mean"), (0, 1, "max"), (None, 0, "mean"))
    ]
    assert notes == ["", "largest of 2 x 2 weights", "mean over 3 heads"]


def test_what_was_computed_is_not_computed_again(tiles: Tiles, monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = Sheet("a", Layer("a", attended(300, 300)), 0)
    before = tiles.tile(sheet, 0, 0, 0)
    monkeypatch.setattr(Sheet, "told", None)
    assert torch.equal(tiles.tile(sheet, 0, 0, 0).values, before.values)
    assert torch.equal(tiles.tile(sheet, 0, 0, 1).values, tiles.tile(sheet, 0, 0, 1).values)


def test_memory_stays_within_its_bound() -> None:
    tiles = Tiles(Turns(), Kept(bound=2**20))
    layer = Layer("a", attended(700, 700))
    for head in (None, 0, 1, 2):
        for level in range(2):
            joined(tiles, Sheet("a", layer, head), level, "mean")
    assert tiles.kept.size <= 2**20
    tiles.turns.close()


@pytest.mark.parametrize(
    ("level", "y", "x", "how", "said"),
    [
        (3, 0, 0, "mean", "level must be from 0 to 2, got 3"),
        (-1, 0, 0, "mean", "level must be from 0 to 2, got -1"),
        (0, 3, 0, "mean", "y must be from 0 to 2 at level 0, got 3"),
        (1, 0, 1, "mean", "x must be from 0 to 0 at level 1, got 1"),
    ],
)
def test_tiles_that_there_are_not(tiles: Tiles, level: int, y: int, x: int, how: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        tiles.tile(Sheet("a", Layer("a", attended(700, 400)), 0), level, y, x, how)


def test_names_that_there_are_not(tiles: Tiles) -> None:
    layer = Layer("a", attended(7, 5))
    with pytest.raises(ArgumentError, match="head must be from 0 to 2, or mean, got 3"):
        Sheet("a", layer, 3)
    with pytest.raises(UnknownNameError, match="way of pooling"):
        tiles.tile(Sheet("a", layer, 0), 0, 0, 0, "median")


@pytest.mark.slow
def test_twenty_thousand_tokens_are_seen_at_once_and_in_little_memory() -> None:
    query, key = torch.randn(2, 1, 12, 20_000, 64)
    sheet = Sheet("a", Layer("a", AttentionMap.of(prepare(query, key, key[..., :0]))), 3)
    tiles, took = Tiles(Turns(), Kept()), []

    def look() -> None:
        # all that a screen shows, zoomed into the middle, then once more with the exact numbers there
        for _ in range(2):
            for level in range(sheet.top, -1, -1):
                middle = runs(20_000, level + 8) // 2
                start = time.thread_time()
                for y, x in ((y, x) for y in range(middle, middle + 3) for x in range(middle, middle + 3)):
                    if max(y, x) < runs(20_000, level + 8):
                        tiles.tile(sheet, level, y, x)
                took.append(time.thread_time() - start)
            assert tiles.turns.settle(600)

    more = grown(look)
    tiles.turns.close()
    # of a processor's time; each screen has up to nine tiles
    assert took[0] < 1
    assert statistics.median(took) < 0.3
    if more is not None:
        assert more < 200
