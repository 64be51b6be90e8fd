from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attent.attention.attend import attend
from attent.attention.capture.concatenated_map import ConcatenatedMap
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, ShapeError


def steps() -> tuple[list[AttentionMap], AttentionMap]:
    """The maps of a prompt of three tokens and two steps of one, and that of all five at once."""
    query, key, value = (torch.randn(2, 3, 5, 4) for _ in range(3))

    def weights(rows: slice, keys: int) -> AttentionMap:
        return attend(query[:, :, rows], key[:, :, :keys], value[:, :, :keys], mask="causal", return_map=True)[1]

    return [weights(slice(0, 3), 3), weights(slice(3, 4), 4), weights(slice(4, 5), 5)], weights(slice(0, 5), 5)


def test_steps_below_one_another_are_the_whole() -> None:
    each, whole = steps()
    joined = ConcatenatedMap(each)
    assert joined.shape == (2, 3, 5, 5)
    torch.testing.assert_close(joined.dense(), whole.dense())
    torch.testing.assert_close(joined[1, :, [4, 0, 3], 2:], whole[1, :, [4, 0, 3], 2:])
    assert torch.equal(joined.argmax(), whole.argmax())


@pytest.mark.parametrize(
    "of",
    [AttentionMap.entropy, AttentionMap.received, AttentionMap.distance, lambda it: it.pooled(2, 3), lambda it: it.top(2)[1]],
    ids=["entropy", "received", "distance", "pooled", "top"],
)
def test_statistics_are_those_of_the_whole(of: type[Tensor]) -> None:
    each, whole = steps()
    torch.testing.assert_close(of(ConcatenatedMap(each)), of(whole))


def test_it_is_detached_and_can_be_kept() -> None:
    each, whole = steps()
    joined = ConcatenatedMap(each)
    assert joined.detach() is joined
    kept, expected = joined.keep(), whole.dense()
    each[1].query.zero_()
    torch.testing.assert_close(kept.dense(), expected)


def test_what_cannot_be_joined() -> None:
    each, _ = steps()
    other = torch.randn(2, 1, 3, 4)
    with pytest.raises(ShapeError, match=r"the same batch and heads, got \(2, 3, 3, 3\), \(2, 1, 3, 3\)"):
        ConcatenatedMap([each[0], attend(other, other, other, return_map=True)[1]])
    with pytest.raises(ArgumentError, match="ask the map of one call"):
        ConcatenatedMap(each).scores()


def test_some_rows_of_some_heads() -> None:
    each, whole = steps()
    found = torch.zeros(whole.shape)
    with ConcatenatedMap(each).tiles(range(0, 5, 2), range(1, 2), range(1, 2)) as tiles:
        for tile in tiles:
            found[(*tile.index, tile.columns)] = tile.weights
    expected = torch.zeros(whole.shape)
    expected[1, 1, ::2] = whole.dense()[1, 1, ::2]
    torch.testing.assert_close(found, expected)
