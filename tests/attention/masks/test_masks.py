"""Each mask: the pairs that it shows, the sizes that it refuses, and its reach, beyond which nothing may attend."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import attend, prepare
from attent.attention.backends import bands
from attent.attention.base import Mask
from attent.attention.call import Call
from attent.attention.masks import (
    Around,
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
from attent.attention.scores import Additive
from attent.errors import ArgumentError, DTypeError, ShapeError
from attent.testing import check_part

TABLE = torch.tensor([[True, False, True], [False, True, False], [True, True, True]])
PACKED = torch.tensor([[0, 0, 1, 1, 1]])
CHOSEN = torch.tensor([[0, 2], [1, 1], [-1, -1], [4, -1]])
OPEN = Window(None, None)
# the arguments of `draw` after each mask: queries, keys and perhaps the head
PICTURES: list[tuple[Mask, tuple[int, ...], str]] = [
    (Around(torch.tensor([[0, 3, 9]]), 1), (3, 6), "■■····\n··■■■·\n······"),
    (Around(torch.tensor([[0.5, 3.0, 4.9]]), 1), (3, 6), "■■····\n··■■■·\n····■■"),
    (Around(torch.arange(7)[None], 2), (7,), Window(2, 2).draw(7)),
    # queries belong where their positions do or where it is said
    (Documents(PACKED), (2, 5), "··■■■\n··■■■"),
    (Documents(PACKED), (4, 5), "■■···\n··■■■\n··■■■\n··■■■"),
    (Documents(PACKED, torch.tensor([[0, 1, 2]])), (3, 5), "■■···\n··■■■\n·····"),
    (Documents(PACKED[0]), (4, 5), "■■···\n··■■■\n··■■■\n··■■■"),
    (Documents(PACKED[0], torch.tensor([0, 1, 2])), (3, 5), "■■···\n··■■■\n·····"),
    (Excluded(CHOSEN), (4, 5), "·■·■■\n■·■■■\n■■■■■\n■■■■·"),
    (Selected(CHOSEN), (4, 5), "■·■··\n·■···\n·····\n····■"),
    (PerHead([Causal(), Window(0, 1)]), (3,), "■··\n■■·\n■■■"),
    (PerHead([Causal(), Window(0, 1)]), (3, 3, 1), "■■·\n·■■\n··■"),
    (PerHead([Causal(), None]), (2, 3, 1), "■■■\n■■■"),
    (Prefix(2), (3, 5), "■■···\n■■···\n■■···"),
    (Causal() | Prefix(2), (4,), "■■··\n■■··\n■■■·\n■■■■"),
    (Table(torch.tensor([[True, False], [False, True]])), (2,), "■·\n·■"),
    (Window(1, 2), (5,), "■■■··\n■■■■·\n·■■■■\n··■■■\n···■■"),
    (Window(0, 0), (3,), "■··\n·■·\n··■"),
    # by position: the last of two queries stands on the last of five keys
    (Window(1, 0), (2, 5), "··■■·\n···■■"),
    (Window(None, 0), (7,), Causal().draw(7)),
    (OPEN, (3,), "■■■\n■■■\n■■■"),
    (Window(0, None), (3,), "■■■\n·■■\n··■"),
]


@pytest.mark.parametrize(("mask", "sizes", "picture"), PICTURES, ids=lambda part: type(part).__name__)
def test_the_picture(mask: Mask, sizes: tuple[int, ...], picture: str) -> None:
    assert mask.draw(*sizes[:2], **({"head": sizes[2]} if len(sizes) == 3 else {})) == picture


QUERY = torch.zeros(2, 5, 3)
ONES = torch.ones(2, 4, 5, 7).bool()
REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: Around(torch.zeros(1, 2), -1), ArgumentError, "distance must be ≥ 0, got -1"),
    (lambda: Around(torch.zeros(3), 1), ShapeError, "centers must be (B|1, Tq), got (3,)"),
    (
        lambda: attend(QUERY, QUERY, QUERY, mask=Around(torch.zeros(1, 4), 1)),
        ShapeError,
        "centers must be (B|1, Tq) = (2, 5), got (1, 4)",
    ),
    (lambda: Documents(PACKED).check(1, 1, 5, 11), ShapeError, "documents of keys must be (B|1, T) = (1, 11), got"),
    (lambda: Documents(PACKED.expand(2, 5)).check(3, 1, 5, 5), ShapeError, "documents of keys must be (B|1, T) = (3,"),
    (lambda: Documents(PACKED[0]).check(2, 1, 5, 7), ShapeError, "documents of keys must be (B|1, T) = (2, 7), got"),
    (lambda: Documents(PACKED[None]).check(1, 1, 5, 5), ShapeError, "documents of keys must be (B|1, T) = (1, 5), got"),
    (lambda: Documents(PACKED, PACKED).check(1, 1, 3, 5), ShapeError, "documents of queries must be (B|1, T) = (1, 3"),
    (lambda: Excluded(torch.ones(5, 7)), DTypeError, "excluded keys must be whole numbers, got torch.float32"),
    (lambda: Excluded(CHOSEN).check(2, 3, 7, 11), ShapeError, "excluded keys must be (B|1, H|1, Tq, n) = (2, 3, 7, n)"),
    (lambda: Padding(torch.tensor([[1], [2]])), ShapeError, "lengths must be (B,), got (2, 1)"),
    (lambda: Padding(torch.tensor([1.0])), DTypeError, "lengths must be whole numbers, got torch.float32"),
    (lambda: Padding(torch.tensor([1, 2])).check(3, 1, 5, 7), ShapeError, "lengths must be (B,) = (3,), got (2,)"),
    (lambda: PerHead(["causal", None]), ArgumentError, "per_head needs a Mask or None for each head, got ['causal', "),
    (lambda: PerHead([OPEN, OPEN]).check(2, 3, 5, 7), ShapeError, "per_head needs a mask for each of 3 heads, got 2"),
    (lambda: PerHead([OPEN, Table(TABLE)]).check(2, 2, 5, 7), ShapeError, "mask must be (Tq, Tk) = (5, 7), got (3, 3)"),
    (lambda: Prefix(torch.tensor([1, 2])).check(3, 1, 5, 7), ShapeError, "prefix length must be a number or (B,) = (3"),
    (lambda: Selected(torch.ones(5, 7).bool()), DTypeError, "selected keys must be whole numbers, got torch.bool"),
    (lambda: Selected(CHOSEN[None]), ShapeError, "selected keys must be (Tq, n) or (B|1, H|1, Tq, n), got (1,"),
    (lambda: Selected(CHOSEN).check(2, 3, 7, 11), ShapeError, "selected keys must be (B|1, H|1, Tq, n) = (2, 3, 7, n)"),
    (lambda: Selected(CHOSEN.expand(5, 1, 4, 2)).check(2, 3, 4, 11), ShapeError, "selected keys must be (B|1, H|1, Tq"),
    (lambda: Table(torch.ones(5, 7).byte()), DTypeError, "mask must be boolean, True where a query may attend, got"),
    (lambda: Table(ONES[:, 0]), ShapeError, "mask must be (Tq, Tk) or (B|1, H|1, Tq, Tk), got (2, 5, 7)"),
    (lambda: Table(ONES).check(2, 4, 5, 8), ShapeError, "mask must be (B|1, H|1, Tq, Tk) = (2, 4, 5, 8), got (2, 4, 5"),
    (lambda: Window(-1, 0), ArgumentError, "window's left must be ≥ 0 or None, got -1"),
    (lambda: Window(0, -2), ArgumentError, "window's right must be ≥ 0 or None, got -2"),
]


@pytest.mark.parametrize(("make", "error", "message"), REFUSED)
def test_what_does_not_fit(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        make()


def test_what_fits_every_batch() -> None:
    Padding(torch.tensor([4])).check(3, 1, 5, 7)
    Prefix(3).check(2, 1, 5, 7)
    Documents(torch.zeros(2, 7).long(), torch.zeros(2, 5).long()).check(2, 1, 5, 7)


def call_of(mask: Mask | str, batch: int, queries: int, keys: int, heads: int = 1, **arguments: Any) -> Call:
    sides = (torch.zeros(batch, heads, length, 2) for length in (queries, keys, keys))
    return prepare(*sides, mask=mask, **arguments).call


@pytest.mark.parametrize(
    ("mask", "queries", "keys", "exact"),
    [
        (Documents(torch.tensor([[0, 0, 1, 1, 1, -1, -1]])), 7, 7, True),
        (Documents(torch.tensor([[3, 3, 0, 0, 0, 2, 2]])), 7, 7, True),
        (Documents(torch.tensor([[0, 1, 0, 1, 1, 2, 2]])), 7, 7, False),
        (Documents(torch.tensor([[-1, 0, 0, -1, 1, 1, -1]])), 7, 7, True),
    ],
)
def test_keys_without_gaps_are_a_range_for_each_query(mask: Mask, queries: int, keys: int, exact: bool) -> None:
    call = call_of(mask, 1, queries, keys, 2, query_start=0)
    assert call.key_range.exact is exact
    inside = (torch.arange(keys) >= call.key_range.begin) & (torch.arange(keys) < call.key_range.end)
    allowed = mask.allowed(call.pairs())
    assert torch.equal(inside, allowed) is exact
    assert not (allowed & ~inside).any()


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
    call = call_of("causal", 2, queries, keys, **arguments)
    allowed = call.allowed(call.pairs()).expand(2, 1, queries, keys)[:, 0]
    assert torch.equal(allowed, torch.arange(keys) < torch.tensor(expected)[..., None])


def test_documents_of_one_text_need_no_axis_for_the_batch() -> None:
    text = torch.randn(5, 3)
    expected = torch.cat([attend(part, part, part) for part in (text[:2], text[2:])])
    torch.testing.assert_close(attend(text, text, text, mask=Documents(PACKED[0])), expected)
    batch = torch.stack([text, text])
    torch.testing.assert_close(attend(batch, batch, batch, mask=Documents(PACKED[0]))[1], expected)


def test_packed_documents_are_as_if_alone() -> None:
    features = torch.randn(2, 7, 3)
    packed = Documents(torch.tensor([[0, 0, 0, 1, 1, -1, -1], [5, 5, 2, 2, 2, 2, 7]]))
    output = attend(features, features, features, mask=Causal() & packed)
    for index, (first, last) in ((0, (0, 3)), (0, (3, 5)), (1, (0, 2)), (1, (2, 6)), (1, (6, 7))):
        single = features[index, first:last]
        torch.testing.assert_close(output[index, first:last], attend(single, single, single, mask="causal"))
    # nobody sees the padding, nor does the padding see anybody
    assert output[0, 5:].count_nonzero() == 0


def test_each_query_sees_its_chosen_keys_or_all_but_the_excluded() -> None:
    query, key = torch.randn(4, 3), torch.randn(5, 3)
    output = attend(query, key, key, mask=Selected(CHOSEN))
    torch.testing.assert_close(output[0], attend(query[:1], key[[0, 2]], key[[0, 2]])[0])
    torch.testing.assert_close(output[[1, 3]], key[[1, 4]])
    assert output[2].count_nonzero() == 0
    output = attend(query, key, key, mask=Excluded(CHOSEN))
    torch.testing.assert_close(output[0], attend(query[:1], key[[1, 3, 4]], key[[1, 3, 4]])[0])
    torch.testing.assert_close(output[2], attend(query[2:3], key, key)[0])


def test_chosen_keys_of_sequences_heads_and_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 100)
    indices = torch.randint(-1, 7, (2, 3, 5, 2))
    tensors = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4)
    call = prepare(*tensors, mask=Selected(indices)).call
    table = (indices[..., None] == torch.arange(7)).any(-2)
    assert torch.equal(call.allowed(call.pairs()), table)
    output = attend(*tensors, mask=Selected(indices), implementation="tiled")
    torch.testing.assert_close(output, attend(*tensors, mask=table))


@pytest.mark.parametrize("mask_of", [Padding, Prefix])
def test_each_sequence_has_its_own_length(mask_of: Callable[[Tensor], Mask]) -> None:
    query, key, value = torch.randn(3, 5, 2), torch.randn(3, 7, 2), torch.randn(3, 7, 11)
    lengths = torch.tensor([7, 3, 0], dtype=torch.int32)
    output = attend(query, key, value, mask=mask_of(lengths))
    torch.testing.assert_close(attend(query, key, value, lengths=lengths), output)
    for index, length in enumerate((7, 3)):
        torch.testing.assert_close(output[index], attend(query[index], key[index, :length], value[index, :length]))
    assert output[2].count_nonzero() == 0
    torch.testing.assert_close(attend(query, key, value, mask=Prefix(torch.tensor(3)))[1], output[1])


@pytest.mark.parametrize("implementation", ["auto", "reference", "tiled", "sdpa", "dense"])
def test_each_head_attends_as_its_own_mask_says_or_to_everything(implementation: str) -> None:
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    for masks in (
        [Window(1, 1), None, None],
        [Causal(), Padding(torch.tensor([4, 9])), Table(torch.rand(5, 11) < 0.5)],
    ):
        output = attend(query, key, key, mask=PerHead(masks), implementation=implementation)
        for head, mask in enumerate(masks):
            expected = attend(query[:, head], key[:, head], key[:, head], mask=mask, query_start=6)
            torch.testing.assert_close(output[:, head], expected)
    assert attend(query, key, key, mask=PerHead([None] * 3)).equal(attend(query, key, key, mask=PerHead([OPEN] * 3)))


@pytest.mark.parametrize(
    "shape", [(5, 7), (1, 7), (5, 1), (2, 3, 5, 7), (1, 3, 5, 7), (2, 1, 1, 7), (2, 3, 5, 1), (1, 1, 1, 1)], ids=str
)
def test_true_means_may_attend(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 50)
    query, key, value = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 11)
    table = torch.rand(shape) < 0.7
    weights = (query @ key.mT / 2).masked_fill(~table, -torch.inf).softmax(-1).nan_to_num(0.0)
    for implementation in ("reference", "tiled", "sdpa"):
        output = attend(query, key, value, mask=table, implementation=implementation)
        torch.testing.assert_close(output, weights @ value)
        torch.testing.assert_close(attend(query, key, value, mask=Table(table), implementation=implementation), output)


B, H, TQ, TK = 2, 3, 17, 29
dice = torch.Generator().manual_seed(5)
SELECTED = torch.randint(-3, TK, (B, H, TQ, 3), generator=dice)
MASKS: dict[str, Mask] = {
    "causal": Causal(),
    "padding": Padding(torch.tensor([TK, 5])),
    "window": Window(3, 1),
    "around": Around(TK * torch.rand(B, TQ, generator=dice), 3),
    "window without a right end": Window(2, None),
    "prefix": Prefix(4),
    "prefix | window": Prefix(2) | Window(1, 0),
    "window & padding": Window(4, 4) & Padding(torch.tensor([20, 0])),
    "documents": Documents(
        torch.tensor([[0] * 7 + [1] * 9 + [3] * 10 + [-1] * 3]), torch.randint(0, 5, (1, TQ), generator=dice)
    ),
    "documents by position": Documents(torch.randint(-1, 3, (2, TK), generator=dice)),
    "selected": Selected(SELECTED),
    "selected & causal": Selected(SELECTED[0, 0]) & Causal(),
    "by head": PerHead([Window(1, 0), Causal(), Documents(torch.randint(0, 3, (1, TK), generator=dice))]),
}


@pytest.mark.parametrize("name", MASKS)
def test_tiles_within_the_reach_lose_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.randn(B, H, length, 4, dtype=torch.float64).requires_grad_() for length in (TQ, TK, TK)]
    score = Additive(4, 4, 5).double() if [*MASKS].index(name) % 2 else "scaled_dot"
    bias = torch.randn(1, H, TQ, TK, dtype=torch.float64)
    outcomes = []
    for minimum in (None, 1, 40, 2**17):
        if minimum is not None:
            monkeypatch.setattr(bands, "LEAST", minimum)
        context = attend(
            *tensors,
            **{"score": score, "mask": MASKS[name], "bias": bias, "dropout": 0.2, "seed": 3},
            implementation="reference" if minimum is None else "tiled",
        )
        outcomes.append([context, *torch.autograd.grad(context.square().sum(), tensors)])
        torch.testing.assert_close(outcomes[-1], outcomes[0])


SCATTERED = {
    **{name: MASKS[name] for name in ("selected", "selected & causal")},
    "selected | window": Selected(SELECTED) | Window(1, 0),
    "selected | selected": Selected(SELECTED[:, :1]) | Selected(SELECTED[:1]),
    "by head": PerHead([Window(1, 0), Selected(SELECTED[:, :1]), Causal()]),
}


def make_call(mask: Mask) -> Call:
    return prepare(*(torch.randn(B, H, length, 4) for length in (TQ, TK, TK)), mask=mask).call


@pytest.mark.parametrize("name", [name for name in MASKS if name not in SCATTERED])
def test_where_the_reach_says_it_all_nothing_more_is_asked(name: str) -> None:
    assert MASKS[name].visible_keys(make_call(MASKS[name]).pairs()) is None


@pytest.mark.parametrize("mask", (MASKS | SCATTERED).values(), ids=MASKS | SCATTERED)
def test_masks_of_more_pairs_hold_what_their_slot_asks(mask: Mask) -> None:
    check_part(mask, batch=B, heads=H, queries=TQ, keys=TK)


def test_a_table_has_no_reach_and_either_needs_both() -> None:
    table = Table(torch.ones(TQ, TK, dtype=torch.bool))
    pairs = make_call(table).pairs()
    assert table.key_range(pairs) is (table | Causal()).key_range(pairs) is None
    assert (table & Causal()).key_range(pairs) is not None
