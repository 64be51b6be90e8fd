from __future__ import annotations

import sys

import pytest
import torch

from attent.attention import mask_info, prepare
from attent.attention.backends import bands
from attent.attention.backends.bands import Band
from attent.attention.base import Mask
from attent.attention.call import Call
from attent.attention.masks import Causal, Documents, Padding, Selected, Window
from attent.attention.scores import Additive, Gated

QUERY, KEY, VALUE = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4), torch.zeros(2, 3, 7, 11)


@pytest.mark.parametrize(
    ("score", "numbers"),
    [
        ("dot", 1),
        (Additive(4, 4, 13), 13),
        (Gated(4, 4), 2),
        (Gated(4, 4, inner=Additive(4, 4, 13)), 13),
        (lambda query, key: query @ key.mT, 2),
    ],
)
def test_a_row_takes_what_its_score_computes_with(score, numbers: int) -> None:
    assert bands.numbers_per_row(prepare(QUERY, KEY, VALUE, score=score).call) == 2 * 3 * 7 * numbers


@pytest.mark.parametrize(("tile", "lengths"), [(1, [1] * 5), (42, [1] * 5), (84, [2, 2, 1]), (130, [3, 2]), (210, [5])])
def test_tiles_hold_as_many_rows_as_fit(monkeypatch: pytest.MonkeyPatch, tile: int, lengths: list[int]) -> None:
    monkeypatch.setattr(bands, "TILE", tile)
    row_ranges = bands.row_tiles(prepare(QUERY, KEY, VALUE).call)
    assert [len(part) for part in row_ranges] == lengths
    assert [row for part in row_ranges for row in part] == [0, 1, 2, 3, 4]


def make_call(mask: Mask | None, length: int = 64, heads: int = 1) -> Call:
    return prepare(*(torch.zeros(1, heads, length, 1) for _ in range(3)), mask=mask).call


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "LEAST", 1)
    monkeypatch.setattr(bands, "ROWS", 64)
    monkeypatch.setattr(bands, "GATHERED_ROWS", 8)


def keys(band: Band) -> list[int]:
    return list(band.keys) if isinstance(band.keys, range) else band.keys.tolist()


def selected_blocks(table: torch.Tensor, size: int) -> Selected:
    """Let each block of queries select the blocks of keys that a table marks."""
    pairs = table.repeat_interleave(size, 0).repeat_interleave(size, 1)
    return Selected(torch.where(pairs, torch.arange(pairs.shape[1]), -1))


MASKS = [None, Window(3, 0), Causal(), Causal() & Padding(torch.tensor([30])), Documents(torch.arange(64)[None] // 9)]
MASKS += [Selected(torch.randint(0, 64, (64, 2))), selected_blocks(torch.eye(8).roll(3, 1) > 0, 8)]


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: type(mask).__name__)
@pytest.mark.parametrize("tile", [1, 100, 1000, sys.maxsize])
def test_every_row_comes_once_and_every_pair_that_attends_too(mask: Mask | None, tile: int) -> None:
    call = make_call(mask)
    key_bands = bands.split_into_bands(call, 1, tile)
    assert [row for band in key_bands for row in band.rows] == list(range(64))
    allowed = call.allowed(call.pairs())
    visible = torch.ones(64, 64, dtype=torch.bool) if allowed is None else allowed.expand(1, 1, 64, 64)[0, 0]
    for band in key_bands:
        assert not {int(key) for key in visible[band.own].any(0).nonzero()} - set(keys(band))
        assert keys(band) == sorted(keys(band))
        assert len(band.rows) == 1 or band.pairs <= tile


def test_a_window_leaves_bands_of_few_keys() -> None:
    key_bands = bands.split_into_bands(make_call(Window(3, 0), 4096), 1, sys.maxsize)
    assert sum(band.pairs for band in key_bands) <= 2 * bands.WASTE * 4096 * 4


def test_scattered_keys_are_gathered() -> None:
    # each block sees the first block and one far away
    table = torch.zeros(8, 8, dtype=torch.bool)
    table[:, 0] = table[:, 7] = True
    key_bands = bands.split_into_bands(make_call(selected_blocks(table, 8)), 1, sys.maxsize)
    assert all(keys(band) == [*range(8), *range(56, 64)] for band in key_bands)
    sample, gradient = key_bands[0], torch.randn(1, 1, 16, 3)
    total = torch.zeros(1, 1, 64, 3)
    sample.add_key_gradient(total, gradient)
    sample.add_key_gradient(total, gradient)
    assert torch.equal(total[:, :, sample.key_slice], 2 * gradient)
    assert total[:, :, 8:56].count_nonzero() == 0


def test_what_is_mostly_seen_is_not_gathered_and_a_row_that_sees_nothing_asks_for_no_keys() -> None:
    table = torch.ones(8, 8, dtype=torch.bool)
    table[:, 3] = False
    key_bands = bands.split_into_bands(make_call(selected_blocks(table, 8)), 1, sys.maxsize)
    assert all(isinstance(band.keys, range) for band in key_bands)
    key_bands = bands.split_into_bands(make_call(Padding(torch.tensor([0]))), 1, sys.maxsize)
    assert {len(band.keys) for band in key_bands} == {0}


def test_sparse_only_where_enough_is_hidden_of_many() -> None:
    assert bands.is_worthwhile(make_call(Window(3, 0)), 0.5, 64 * 64)
    assert not bands.is_worthwhile(make_call(Window(3, 0)), 0.5, 64 * 64 + 1)
    assert not bands.is_worthwhile(make_call(Window(40, 0)), 0.5, 1)
    assert not bands.is_worthwhile(make_call(None), 0.5, 1)
    assert not bands.is_worthwhile(make_call(Window(3, 0), 63), 0.5, 1)
    # all heads count
    assert bands.is_worthwhile(make_call(Window(3, 0), heads=2), 0.5, 2 * 64 * 64)


def test_the_ends_of_a_span_lie_within_the_keys() -> None:
    sample = prepare(torch.zeros(5, 1), torch.zeros(7, 1), torch.zeros(7, 1), mask=Window(1, 1), query_start=5).call
    bounds = mask_info.key_bounds(sample)
    assert bounds is not None
    first, stop = bounds
    # queries at 5 … 9, of which the last two see nothing
    assert first.flatten().tolist() == [4, 5, 6, 7, 7]
    assert stop.flatten().tolist() == [7, 7, 7, 0, 0]
