"""Each mask: the pairs that it shows, and the sizes that it refuses."""

from __future__ import annotations

import pytest
import torch

from attent.attention import attend, prepare
from attent.attention.backends import bands
from attent.attention.masks import (
    Around,
    Blocks,
    Causal,
    Documents,
    Excluded,
    Padding,
    PerHead,
    Prefix,
    Selected,
    Table,
    Window,
)
from attent.errors import ArgumentError, DTypeError, ShapeError


def test_both_ends_are_included_and_what_lies_outside_is_ignored() -> None:
    assert Around(torch.tensor([[0, 3, 9]]), 1).draw(3, 6) == "■■····\n··■■■·\n······"
    assert Around(torch.tensor([[0.5, 3.0, 4.9]]), 1).draw(3, 6) == "■■····\n··■■■·\n····■■"


def test_about_the_queries_own_places_it_is_a_window() -> None:
    assert Around(torch.arange(7)[None], 2).draw(7) == Window(2, 2).draw(7)


def test_what_it_takes() -> None:
    with pytest.raises(ArgumentError, match=r"^distance must be ≥ 0, got -1$"):
        Around(torch.zeros(1, 2), -1)
    with pytest.raises(ShapeError, match=r"^centers must be \(B\|1, Tq\), got \(3,\)$"):
        Around(torch.zeros(3), 1)
    query = torch.randn(2, 5, 3)
    with pytest.raises(ShapeError, match=r"^centers must be \(B\|1, Tq\) = \(2, 5\), got \(1, 4\)$"):
        attend(query, query, query, mask=Around(torch.zeros(1, 4), 1))


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


def test_blocks_what_does_not_fit() -> None:
    with pytest.raises(ArgumentError, match=r"^block size must be ≥ 1, got 0$"):
        Blocks(TABLE, 0)
    with pytest.raises(DTypeError, match=r"^the table of blocks must be boolean, got torch.int64$"):
        Blocks(TABLE.long(), 2)
    with pytest.raises(ShapeError, match=r"^the table of blocks must be \(q, k\) or \(B\|1, H\|1, q, k\), got"):
        Blocks(TABLE[None], 2)
    with pytest.raises(ShapeError, match=r"^7 keys in blocks of 2 need 4 columns in the table, got 3$"):
        Blocks(TABLE, 2).check(1, 1, 5, 7)
    with pytest.raises(ShapeError, match=r"^the table of blocks must begin with \(B\|1, H\|1\) = \(2, 3\), got"):
        Blocks(TABLE.expand(5, 1, 3, 3), 2).check(2, 3, 5, 5)


def visible_key_counts(queries: int, keys: int, **arguments) -> list[list[int]]:
    """How many keys each query of each sequence sees, and that they are the first ones."""
    call = prepare(
        torch.zeros(2, queries, 3), torch.zeros(2, keys, 3), torch.zeros(2, keys, 3), mask="causal", **arguments
    ).call
    allowed = call.allowed(call.pairs()).expand(2, 1, queries, keys)[:, 0]
    counts = allowed.sum(-1)
    assert torch.equal(allowed, torch.arange(keys) < counts[..., None])
    return counts.tolist()


@pytest.mark.parametrize(
    ("queries", "keys", "arguments", "expected"),
    [
        (3, 3, {}, [[1, 2, 3], [1, 2, 3]]),
        (3, 5, {}, [[3, 4, 5], [3, 4, 5]]),
        (5, 3, {}, [[0, 0, 1, 2, 3], [0, 0, 1, 2, 3]]),
        (1, 7, {}, [[7], [7]]),
        (3, 5, {"query_start": 0}, [[1, 2, 3], [1, 2, 3]]),
        (3, 5, {"query_start": 4}, [[5, 5, 5], [5, 5, 5]]),
        (3, 5, {"query_start": torch.tensor([0, 2])}, [[1, 2, 3], [3, 4, 5]]),
        (2, 5, {"lengths": torch.tensor([5, 3])}, [[4, 5], [2, 3]]),
        (3, 3, {"lengths": torch.tensor([3, 2]), "query_start": 0}, [[1, 2, 3], [1, 2, 2]]),
    ],
)
def test_a_query_sees_up_to_its_position(queries: int, keys: int, arguments: dict, expected: list[list[int]]) -> None:
    assert visible_key_counts(queries, keys, **arguments) == expected


def test_packed_documents_are_as_if_alone() -> None:
    features = torch.randn(2, 7, 3)
    packed = Documents(torch.tensor([[0, 0, 0, 1, 1, -1, -1], [5, 5, 2, 2, 2, 2, 7]]))
    output = attend(features, features, features, mask=Causal() & packed)
    for index, (first, last) in ((0, (0, 3)), (0, (3, 5)), (1, (0, 2)), (1, (2, 6)), (1, (6, 7))):
        single = features[index, first:last]
        torch.testing.assert_close(output[index, first:last], attend(single, single, single, mask="causal"))
    # nobody sees the padding, nor does the padding see anybody
    assert output[0, 5:].count_nonzero() == 0


def test_queries_belong_where_their_positions_do_or_where_it_is_said() -> None:
    keys = torch.tensor([[0, 0, 1, 1, 1]])
    assert Documents(keys).draw(2, 5) == "··■■■\n··■■■"
    assert Documents(keys).draw(4, 5) == "■■···\n··■■■\n··■■■\n··■■■"
    assert Documents(keys, torch.tensor([[0, 1, 2]])).draw(3, 5) == "■■···\n··■■■\n·····"


def test_a_document_for_each_key_and_query() -> None:
    mask = Documents(torch.zeros(2, 7).long(), torch.zeros(2, 5).long())
    mask.check(2, 1, 5, 7)
    with pytest.raises(ShapeError, match=r"^documents of keys must be \(B\|1, T\) = \(2, 11\), got \(2, 7\)$"):
        mask.check(2, 1, 5, 11)
    with pytest.raises(ShapeError, match=r"^documents of queries must be \(B\|1, T\) = \(2, 3\), got \(2, 5\)$"):
        mask.check(2, 1, 3, 7)
    with pytest.raises(ShapeError, match=r"^documents of keys must be \(B\|1, T\) = \(3, 7\), got \(2, 7\)$"):
        mask.check(3, 1, 5, 7)


@pytest.mark.parametrize(
    ("keys", "exact"),
    [
        ([0, 0, 1, 1, 1, -1, -1], True),
        ([3, 3, 0, 0, 0, 2, 2], True),
        ([0, 1, 0, 1, 1, 2, 2], False),
        ([-1, 0, 0, -1, 1, 1, -1], True),
    ],
)
def test_ranges_are_exact_where_no_document_is_interrupted(keys: list[int], exact: bool) -> None:
    features = torch.randn(1, 7, 3)
    call = prepare(features, features, features, mask=Documents(torch.tensor([keys]))).call
    assert call.mask is not None
    key_range = call.mask.key_range(call.pairs())
    assert key_range is not None
    assert key_range.exact is exact
    index = torch.arange(7)
    inside = (index >= key_range.begin) & (index < key_range.end)
    assert bool((inside | ~call.mask.allowed(call.pairs())).all())
    assert torch.equal(inside, call.mask.allowed(call.pairs())) is exact


def test_each_query_sees_all_but_its_excluded_keys() -> None:
    mask = Excluded(torch.tensor([[0, 2], [1, 1], [-1, -1], [4, -1]]))
    assert mask.draw(4, 5) == "·■·■■\n■·■■■\n■■■■■\n■■■■·"
    query, key = torch.randn(4, 3), torch.randn(5, 3)
    output = attend(query, key, key, mask=mask)
    torch.testing.assert_close(output[0], attend(query[:1], key[[1, 3, 4]], key[[1, 3, 4]])[0])
    torch.testing.assert_close(output[2], attend(query[2:3], key, key)[0])


def test_excluded_what_does_not_fit() -> None:
    with pytest.raises(DTypeError, match=r"^excluded keys must be whole numbers, got torch.float32$"):
        Excluded(torch.ones(5, 7))
    with pytest.raises(ShapeError, match=r"^excluded keys must be \(B\|1, H\|1, Tq, n\) = \(2, 3, 7, n\), got"):
        Excluded(torch.zeros(5, 2).long()).check(2, 3, 7, 11)


def test_each_sequence_has_its_own_length() -> None:
    query, key, value = torch.randn(3, 5, 2), torch.randn(3, 7, 2), torch.randn(3, 7, 11)
    lengths = torch.tensor([7, 3, 0], dtype=torch.int32)
    output = attend(query, key, value, mask=Padding(lengths))
    torch.testing.assert_close(attend(query, key, value, lengths=lengths), output)
    for index, length in enumerate((7, 3)):
        torch.testing.assert_close(output[index], attend(query[index], key[index, :length], value[index, :length]))
    assert output[2].count_nonzero() == 0


def test_lengths_are_whole_numbers_one_a_sequence() -> None:
    with pytest.raises(ShapeError, match=r"^lengths must be \(B,\), got \(2, 1\)$"):
        Padding(torch.tensor([[1], [2]]))
    with pytest.raises(DTypeError, match=r"^lengths must be whole numbers, got torch.float32$"):
        Padding(torch.tensor([1.0]))
    with pytest.raises(ShapeError, match=r"^lengths must be \(B,\) = \(3,\), got \(2,\)$"):
        Padding(torch.tensor([1, 2])).check(3, 1, 5, 7)
    Padding(torch.tensor([4])).check(3, 1, 5, 7)


def test_each_head_attends_as_its_own_mask_says() -> None:
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    masks = [Causal(), Padding(torch.tensor([4, 9])), Table(torch.rand(5, 11) < 0.5)]
    output = attend(query, key, key, mask=PerHead(masks))
    for head, mask in enumerate(masks):
        torch.testing.assert_close(output[:, head], attend(query[:, head], key[:, head], key[:, head], mask=mask))


@pytest.mark.parametrize("implementation", ["auto", "reference", "tiled", "sdpa", "dense"])
def test_a_head_of_no_mask_sees_everything(implementation: str) -> None:
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    output = attend(query, key, key, mask=PerHead([Window(1, 1), None, None]), implementation=implementation)
    for head, mask in enumerate([Window(1, 1), None, None]):
        expected = attend(query[:, head], key[:, head], key[:, head], mask=mask, query_start=6)
        torch.testing.assert_close(output[:, head], expected)
    assert PerHead([Causal(), None]).draw(2, 3, head=1) == "■■■\n■■■"
    assert attend(query, key, key, mask=PerHead([None] * 3)).equal(
        attend(query, key, key, mask=PerHead([Window(None, None)] * 3))
    )


def test_what_is_no_mask_is_said() -> None:
    with pytest.raises(ArgumentError, match=r"^per_head needs a Mask or None for each head, got \['causal', None\]$"):
        PerHead(["causal", None])


def test_the_picture_is_of_one_head() -> None:
    mask = PerHead([Causal(), Window(0, 1)])
    assert mask.draw(3) == Causal().draw(3)
    assert mask.draw(3, head=1) == "■■·\n·■■\n··■"
    assert repr(mask) == "PerHead([Causal(), Window(left=0, right=1)])"
    assert str(mask).startswith(repr(mask) + "\n■·······\n")


def test_as_many_masks_as_heads_and_each_fits() -> None:
    with pytest.raises(ShapeError, match=r"^per_head needs a mask for each of 3 heads, got 2$"):
        PerHead([Causal(), Causal()]).check(2, 3, 5, 7)
    with pytest.raises(ShapeError, match=r"^mask must be \(Tq, Tk\) = \(5, 7\), got \(7, 5\)$"):
        PerHead([Causal(), Table(torch.ones(7, 5).bool())]).check(2, 2, 5, 7)


def test_everyone_sees_the_beginning() -> None:
    assert Prefix(2).draw(3, 5) == "■■···\n■■···\n■■···"
    assert (Causal() | Prefix(2)).draw(4) == "■■··\n■■··\n■■■·\n■■■■"


def test_each_sequence_may_have_its_own() -> None:
    query, key = torch.randn(2, 5, 3), torch.randn(2, 7, 3)
    output = attend(query, key, key, mask=Prefix(torch.tensor([4, 1])))
    torch.testing.assert_close(output[0], attend(query[0], key[0, :4], key[0, :4]))
    torch.testing.assert_close(output[1], key[1, :1].expand(5, 3))
    torch.testing.assert_close(attend(query, key, key, mask=Prefix(torch.tensor(4)))[0], output[0])


def test_as_many_lengths_as_sequences() -> None:
    with pytest.raises(ShapeError, match=r"^prefix length must be a number or \(B,\) = \(2,\), got \(3,\)$"):
        Prefix(torch.tensor([1, 2, 3])).check(2, 1, 5, 7)
    Prefix(3).check(2, 1, 5, 7)


def test_each_query_sees_its_chosen_keys() -> None:
    mask = Selected(torch.tensor([[0, 2], [1, 1], [-1, -1], [4, -1]]))
    assert mask.draw(4, 5) == "■·■··\n·■···\n·····\n····■"
    query, key = torch.randn(4, 3), torch.randn(5, 3)
    output = attend(query, key, key, mask=mask)
    torch.testing.assert_close(output[0], attend(query[:1], key[[0, 2]], key[[0, 2]])[0])
    torch.testing.assert_close(output[[1, 3]], key[[1, 4]])
    assert output[2].count_nonzero() == 0


def test_sequences_heads_and_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 100)
    indices = torch.randint(-1, 7, (2, 3, 5, 2))
    tensors = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4)
    call = prepare(*tensors, mask=Selected(indices)).call
    table = (indices[..., None] == torch.arange(7)).any(-2)
    assert torch.equal(call.allowed(call.pairs()), table)
    torch.testing.assert_close(
        attend(*tensors, mask=Selected(indices), implementation="tiled"), attend(*tensors, mask=table)
    )


def test_selected_what_does_not_fit() -> None:
    with pytest.raises(DTypeError, match=r"^selected keys must be whole numbers, got torch.bool$"):
        Selected(torch.ones(5, 7).bool())
    with pytest.raises(ShapeError, match=r"^selected keys must be \(Tq, n\) or \(B\|1, H\|1, Tq, n\), got \(2,"):
        Selected(torch.zeros(2, 5, 7).long())
    with pytest.raises(ShapeError, match=r"^selected keys must be \(B\|1, H\|1, Tq, n\) = \(2, 3, 7, n\), got"):
        Selected(torch.zeros(5, 2).long()).check(2, 3, 7, 11)
    with pytest.raises(ShapeError, match=r"got \(5, 1, 7, 2\)$"):
        Selected(torch.zeros(5, 1, 7, 2).long()).check(2, 3, 7, 11)


SHAPES = [(5, 7), (1, 7), (5, 1), (2, 3, 5, 7), (1, 3, 5, 7), (2, 1, 1, 7), (2, 3, 5, 1), (1, 1, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("implementation", ["reference", "tiled", "sdpa"])
def test_true_means_may_attend(shape: tuple[int, ...], implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 50)
    query, key, value = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 11)
    table = torch.rand(shape) < 0.7
    weights = (query @ key.mT / 2).masked_fill(~table, -torch.inf).softmax(-1).nan_to_num(0.0)
    output = attend(query, key, value, mask=table, implementation=implementation)
    torch.testing.assert_close(output, weights @ value)
    torch.testing.assert_close(attend(query, key, value, mask=Table(table), implementation=implementation), output)


def test_the_picture() -> None:
    assert Table(torch.tensor([[True, False], [False, True]])).draw(2) == "■·\n·■"
    assert repr(Table(torch.ones(2, 3, 5, 7).bool())) == "Table((2, 3, 5, 7))"


def test_table_what_does_not_fit() -> None:
    with pytest.raises(DTypeError, match=r"^mask must be boolean, True where a query may attend, got"):
        Table(torch.ones(5, 7).byte())
    with pytest.raises(ShapeError, match=r"^mask must be \(Tq, Tk\) or \(B\|1, H\|1, Tq, Tk\), got \(2, 5, 7\)$"):
        Table(torch.ones(2, 5, 7).bool())
    with pytest.raises(ShapeError, match=r"^mask must be \(B\|1, H\|1, Tq, Tk\) = \(2, 4, 5, 7\), got \(2, 4, 5, 2\)$"):
        Table(torch.ones(2, 4, 5, 2).bool()).check(2, 4, 5, 7)


def test_both_ends_are_included() -> None:
    assert Window(1, 2).draw(5) == "■■■··\n■■■■·\n·■■■■\n··■■■\n···■■"
    assert Window(0, 0).draw(3) == "■··\n·■·\n··■"
    # by position: the last of two queries stands on the last of five keys
    assert Window(1, 0).draw(2, 5) == "··■■·\n···■■"


def test_an_open_side_sees_all() -> None:
    assert Window(None, 0).draw(7) == Causal().draw(7)
    assert Window(None, None).draw(3) == "■■■\n■■■\n■■■"
    assert Window(0, None).draw(3) == "■■■\n·■■\n··■"


def test_sides_are_not_negative() -> None:
    with pytest.raises(ArgumentError, match=r"^window's left must be ≥ 0 or None, got -1$"):
        Window(-1, 0)
    with pytest.raises(ArgumentError, match=r"^window's right must be ≥ 0 or None, got -2$"):
        Window(0, -2)
