from __future__ import annotations

import pytest
import torch

from attent.attention import prepare
from attent.attention.masks import Blocks
from attent.errors import ArgumentError, DTypeError, ShapeError

TABLE = torch.tensor([[True, False, True], [False, True, False], [True, True, True]])


def test_blocks_of_queries_see_blocks_of_keys() -> None:
    assert Blocks(TABLE, 2).draw(5) == "■■··■\n■■··■\n··■■·\n··■■·\n■■■■■"
    # by position: two queries stand in the second and the third block
    assert Blocks(TABLE, 2).draw(2, 5) == "··■■·\n■■■■■"
    assert Blocks(TABLE, 1).draw(3) == "■·■\n·■·\n■■■"


def test_each_sequence_and_head_may_have_its_own_table() -> None:
    table = torch.rand(2, 3, 4, 3) < 0.5
    call = prepare(
        torch.zeros(2, 3, 7, 2), torch.zeros(2, 3, 5, 2), torch.zeros(2, 3, 5, 2), mask=Blocks(table, 2), query_start=0
    ).call
    expected = table.repeat_interleave(2, 2)[:, :, :7].repeat_interleave(2, 3)[..., :5]
    assert torch.equal(call.allowed(call.pairs()), expected)


@pytest.mark.parametrize(
    ("table", "exact"),
    [
        (torch.eye(5) + torch.eye(5).roll(1, 0).tril() > 0, True),
        (torch.tensor([[False, True, True], [False] * 3, [True, False, False]]), True),
        (torch.tensor([[True] * 3, [True, False, True]]), False),
        (torch.stack([torch.eye(3), torch.eye(3).flip(0)])[None] > 0, True),
    ],
)
def test_a_table_without_gaps_is_a_range_for_each_query(table: torch.Tensor, exact: bool) -> None:
    """Then dense attention skips what is hidden without a table of all pairs."""
    queries, keys = 2 * table.shape[-2], 2 * table.shape[-1] - 1
    call = prepare(
        *(torch.zeros(1, 2, length, 3) for length in (queries, keys, keys)), mask=Blocks(table, 2), query_start=0
    ).call
    key_range = call.key_range
    assert key_range is not None
    assert key_range.exact is exact
    index = torch.arange(keys)
    within = (index >= key_range.begin) & (index < key_range.end)
    allowed = Blocks(table, 2).allowed(call.pairs())
    assert torch.equal(within, allowed) is exact
    assert not (allowed & ~within).any()


def test_positions_may_differ_from_sequence_to_sequence() -> None:
    zeros, start = torch.zeros(2, 2, 3), torch.tensor([0, 3])
    call = prepare(zeros, torch.zeros(2, 5, 3), torch.zeros(2, 5, 3), mask=Blocks(TABLE, 2), query_start=start).call
    marks = [
        ["".join("■" if may else "·" for may in row) for row in item[0]] for item in call.allowed(call.pairs()).tolist()
    ]
    assert marks == [["■■··■", "■■··■"], ["··■■·", "■■■■■"]]


def test_what_does_not_fit() -> None:
    with pytest.raises(ArgumentError, match=r"^block size must be ≥ 1, got 0$"):
        Blocks(TABLE, 0)
    with pytest.raises(DTypeError, match=r"^the table of blocks must be boolean, got torch.int64$"):
        Blocks(TABLE.long(), 2)
    with pytest.raises(
        ShapeError, match=r"^the table of blocks must be \(q, k\) or \(B\|1, H\|1, q, k\), got \(1, 3, 3\)$"
    ):
        Blocks(TABLE[None], 2)
    with pytest.raises(ShapeError, match=r"^7 keys in blocks of 2 need 4 columns in the table, got 3$"):
        Blocks(TABLE, 2).check(1, 1, 5, 7)
    with pytest.raises(
        ShapeError, match=r"^the table of blocks must begin with \(B\|1, H\|1\) = \(2, 3\), got \(5, 1, 3, 3\)$"
    ):
        Blocks(TABLE.expand(5, 1, 3, 3), 2).check(2, 3, 5, 5)
