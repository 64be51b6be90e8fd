from __future__ import annotations

import pytest
import torch
from torch import nn

from attent.attention import attend, prepare
from attent.attention.positions import RelativeBias
from attent.errors import ArgumentError, ShapeError


@pytest.mark.parametrize(
    ("distances", "buckets"),
    [
        # Of 32 buckets 16 lie to each side, 8 of them for one distance each; beyond, 8 + ⌊8·ln(d/8)/ln(128/8)⌋ up to
        # the last. d = 8: 8 + 0; 11: 8·0.318/2.773 = 0.92, 8; 12: 1.17, 9; 31: 3.91, 11; 32: 4; 127: 7.98, 15; 128 and
        # 1000: 15.
        ([0, -1, -7, -8, -11, -12, -31, -127, -128, -1000], [0, 1, 7, 8, 8, 9, 11, 15, 15, 15]),
        # keys behind the query have the other 16
        ([1, 7, 8, 12, 1000], [17, 23, 24, 25, 31]),
    ],
)
def test_buckets_of_both_sides(distances: list[int], buckets: list[int]) -> None:
    assert RelativeBias(1).bucket(torch.tensor(distances)).tolist() == buckets


def test_buckets_of_one_side() -> None:
    # all 32 to the past, 16 of them for one distance each: d = 23 gives 16 + ⌊16·ln(23/16)/ln(8)⌋ = 16 + ⌊2.79⌋
    bias = RelativeBias(1, bidirectional=False)
    assert bias.bucket(torch.tensor([5, 1, 0, -1, -15, -16, -23, -127, -500])).tolist() == [
        0,
        0,
        0,
        1,
        15,
        16,
        18,
        31,
        31,
    ]


def test_the_bias_is_the_buckets_number() -> None:
    bias = RelativeBias(2, buckets=4, maximum_distance=3)
    # with 2 buckets to each side: 0 for distance 0, 1 for the past, 2 + 1 for the future
    nn.init.zeros_(bias.table)
    bias.table.data[1], bias.table.data[3] = torch.tensor([10.0, 20.0]), torch.tensor([0.5, 0.25])
    features = torch.zeros(1, 2, 3, 5)
    scores = attend(features, features, torch.eye(3).expand(1, 2, 3, 3), position=bias, normalizer="identity")
    assert scores[0, 0].tolist() == [[0.0, 0.5, 0.5], [10.0, 0.0, 0.5], [10.0, 10.0, 0.0]]
    assert scores[0, 1].tolist() == [[0.0, 0.25, 0.25], [20.0, 0.0, 0.25], [20.0, 20.0, 0.0]]


def test_the_table_learns_in_every_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attent.attention.backends.row_tiles.TILE", 50)
    bias, features = RelativeBias.for_heads(3).double(), torch.randn(2, 3, 5, 7).double()
    nn.init.normal_(bias.table)
    gradients = [
        torch.autograd.grad(
            attend(features, features, features, position=bias, implementation=name).square().sum(), bias.table
        )[0]
        for name in ("reference", "tiled")
    ]
    torch.testing.assert_close(*gradients)
    # five tokens look at distances −4 to 4 and at no other
    assert gradients[0].abs().sum(-1).nonzero().flatten().tolist() == [0, 1, 2, 3, 4, 17, 18, 19, 20]


def test_the_bias_by_offset_is_that_of_all_pairs() -> None:
    bias, features = RelativeBias(2, 6, 5), torch.zeros(1, 2, 7, 3)
    nn.init.normal_(bias.table)
    pairs = prepare(features, features, features).call.pairs()
    query, key = pairs.broadcast_positions()
    by_offset = bias.bias_by_offset((key - query).flatten())
    assert torch.equal(by_offset, bias.bias(pairs).flatten(2)[0])
    # all 49 pairs share the six numbers of a head
    assert torch.autograd.grad(by_offset.sum(), bias.table)[0].sum(0).tolist() == [49.0, 49.0]


def test_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"^relative_bias was made for 3 heads, got 2$"):
        RelativeBias(3).check(2, 7)
    for arguments in ({"buckets": 3}, {"buckets": 32, "maximum_distance": 8}, {"buckets": 1, "bidirectional": False}):
        with pytest.raises(ArgumentError, match=r"^relative_bias cannot share out"):
            RelativeBias(2, **arguments)
    assert repr(RelativeBias(3)) == "RelativeBias(heads=3, buckets=32, maximum_distance=128)"
