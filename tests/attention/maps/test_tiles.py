"""Tiles of a map whose heads share keys."""

import pytest
import torch

from attent.attention import attend


@pytest.mark.parametrize("heads", [range(6), range(2, 4), range(1, 6), range(5, 6)], ids=str)
@pytest.mark.parametrize("mask", [None, "causal"])
def test_heads_that_share_keys_have_the_weights_of_copies(heads: range, mask: str | None) -> None:
    query, key = torch.randn(2, 6, 5, 4), torch.randn(2, 3, 7, 4)
    _, shared = attend(query, key, key, mask=mask, return_map=True)
    copies = key.repeat_interleave(2, 1)
    expected = attend(query, copies, copies, mask=mask, return_map=True)[1].dense()
    with shared.tiles(heads=heads) as tiles:
        for tile in tiles:
            torch.testing.assert_close(tile.weights, expected[tile.batches, tile.heads, tile.rows, tile.columns])
