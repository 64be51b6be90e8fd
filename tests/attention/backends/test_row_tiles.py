from __future__ import annotations

import pytest
import torch

from attent.attention import prepare
from attent.attention.backends import row_tiles
from attent.attention.base import LoweredSide
from attent.attention.scores import Additive, Gated, Gaussian, General

QUERY, KEY, VALUE = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4), torch.zeros(2, 3, 7, 11)


@pytest.mark.parametrize(
    ("score", "numbers"),
    [
        ("dot", 1),
        (Additive(4, 4, 13), 13),
        (Gated(4, 4), 4),
        (Gated(4, 4, inner=Additive(4, 4, 13)), 13),
        (lambda query, key: query @ key.mT, 4),
    ],
)
def test_a_row_takes_what_its_score_computes_with(score, numbers: int) -> None:
    assert row_tiles.per_row(prepare(QUERY, KEY, VALUE, score=score).call) == 2 * 3 * 7 * numbers


@pytest.mark.parametrize(("tile", "lengths"), [(1, [1] * 5), (42, [1] * 5), (84, [2, 2, 1]), (130, [3, 2]), (210, [5])])
def test_tiles_hold_as_many_rows_as_fit(monkeypatch: pytest.MonkeyPatch, tile: int, lengths: list[int]) -> None:
    monkeypatch.setattr(row_tiles, "TILE", tile)
    row_ranges = row_tiles.tiles(prepare(QUERY, KEY, VALUE).call)
    assert [len(part) for part in row_ranges] == lengths
    assert [row for part in row_ranges for row in part] == [0, 1, 2, 3, 4]


def test_lowering_empties_hidden_keys_and_is_exact() -> None:
    general = General(4, 4)
    query, key, value = (
        torch.randn(2, 3, 5, 4).bfloat16(),
        torch.randn(2, 1, 7, 4).bfloat16(),
        torch.randn(2, 1, 7, 11).bfloat16(),
    )
    key[1, :, 3:], value[1, :, 3:] = torch.nan, torch.inf
    prepared = prepare(query, key, value, score=general, lengths=torch.tensor([7, 3]))
    lowered = row_tiles.lower(*prepared)
    assert lowered.query.features.dtype == lowered.key.features.dtype == lowered.value.dtype == torch.float32
    assert lowered.key.features.shape == (2, 3, 7, 4)
    assert lowered.key.features[1, :, 3:].count_nonzero() == lowered.value[1, :, 3:].count_nonzero() == 0
    torch.testing.assert_close(lowered.query.features, query.float() @ general.weight)


def test_what_came_lowered_is_not_lowered_again() -> None:
    score = Gaussian()
    side = score.lower_key(torch.randn(2, 3, 7, 4))
    lowered = row_tiles.lower(*prepare(QUERY, side, VALUE, score=score))
    for actual, original in zip(lowered.key, side, strict=True):
        assert torch.equal(actual, original)


def test_hidden_keys_do_not_move_the_centre() -> None:
    """Keys far from 0 and padding beside them.

    Centred on the visible ones, or the expansion of the square would cancel.
    """
    score, query, key = Gaussian(), torch.randn(2, 3, 5, 4) + 1e4, torch.randn(2, 3, 7, 4) + 1e4
    call, *tensors = prepare(query, key, VALUE, score=score, lengths=torch.tensor([5, 2]))
    lowered = row_tiles.lower(call, *tensors)
    for index, length in enumerate((5, 2)):
        actual = score.score_lowered(
            LoweredSide(*(part[index] for part in lowered.query)), LoweredSide(*(part[index] for part in lowered.key))
        )[..., :length]
        torch.testing.assert_close(actual, score(query[index], key[index, :, :length]), rtol=1e-3, atol=1e-3)


def test_some_rows_of_a_query_side() -> None:
    side = LoweredSide(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5), torch.randn(2, 3, 1, 4))
    for selection in (slice(1, 3), torch.tensor([4, 0])):
        part = row_tiles.some(side, selection)
        assert torch.equal(part.features, side.features[:, :, selection])
        assert torch.equal(part.bias, side.bias[:, :, selection])
        assert part.center is side.center
    assert row_tiles.some(LoweredSide(side.features), slice(0, 1)).bias is None
