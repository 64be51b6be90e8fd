"""Each position: what it adds or rotates, and one number worked by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from attent.attention import attend, prepare
from attent.attention.base import Pairs, Position
from attent.attention.positions import Alibi, Learned, RelativeBias, Rotary, Sinusoidal
from attent.attention.positions.sinusoidal import waves
from attent.attention.scores import Dot
from attent.errors import ArgumentError, ShapeError


def pairs_of(heads: int, queries: int, keys: int, start: int | None = None) -> Pairs:
    sides = (torch.zeros(1, heads, length, 2) for length in (queries, keys, keys))
    return prepare(*sides, query_start=start).call.pairs()


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        # 2^{−8/4 · 1, 2, 3, 4}
        (4, [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
        # those of 4, then the first and the third of 8: 2^{−1}, 2^{−3}
        (6, [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]),
        (1, [1 / 256]),
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
    ],
)
def test_slopes(heads: int, slopes: list[float]) -> None:
    assert Alibi.slopes(heads) == slopes


def test_the_penalty_grows_with_distance() -> None:
    # the queries stand at 2, 3 and 4
    distances = torch.tensor([[2, 1, 0, 1, 2], [3, 2, 1, 0, 1], [4, 3, 2, 1, 0]])
    expected = -torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256])[:, None, None] * distances
    assert torch.equal(Alibi().bias(pairs_of(4, 3, 5))[0], expected)


def test_alibi_is_exact_in_float64() -> None:
    # the steepest of 12 heads' slopes is 2^{−1/2}, which float32 would round
    zeros = torch.zeros(1, 12, 3, 2, dtype=torch.float64)
    scores = attend(zeros, zeros, zeros, position="alibi", return_map=True)[1].scores("biased")[0, 8, 2, 0]
    assert scores.item() == -2 * 2**-0.5


def test_each_sequence_has_its_own_positions() -> None:
    features = torch.randn(2, 3, 5, 4)
    output = attend(features[:, :, :1], features, features, position="alibi", query_start=torch.tensor([0, 4]))
    for index, start in enumerate((0, 4)):
        single = features[index : index + 1]
        expected = attend(single[:, :, :1], single, single, position="alibi", query_start=start)
        torch.testing.assert_close(output[index], expected[0])


@pytest.mark.parametrize("position", [Alibi(3), Alibi(12), RelativeBias(2, 6, 5)], ids=["3", "12", "relative"])
def test_the_bias_by_offset_is_that_of_all_pairs(position: Position) -> None:
    pairs = pairs_of(heads := position.heads, 3, 5, start=1)
    if isinstance(position, RelativeBias):
        nn.init.normal_(position.table)
    query, key = pairs.broadcast_positions()
    by_offset = position.bias_by_offset((key - query).flatten())
    assert torch.equal(by_offset, position.bias(pairs).reshape(heads, -1))
    if isinstance(position, RelativeBias):
        # all 15 pairs share the six numbers of a head
        assert torch.autograd.grad(by_offset.sum(), position.table)[0].sum(0).tolist() == [15.0, 15.0]


def test_the_number_of_heads_comes_with_the_call() -> None:
    assert Alibi().bias_by_offset(torch.arange(3)) is None
    features = torch.zeros(1, 3, 5, 2)
    position = prepare(features, features, features, position=Alibi()).call.position
    assert position.bias_by_offset(torch.tensor([-2, 0])).tolist() == [[-2 / 16, 0.0], [-2 / 256, 0.0], [-2 / 4, 0.0]]
    with pytest.raises(ShapeError, match=r"^alibi was made for 2 heads, got 3$"):
        attend(features, features, features, position=Alibi(2))


def test_the_row_of_each_position_is_added_and_learns() -> None:
    position, features = Learned(3, 11), torch.randn(2, 5, 3)
    assert position.table.shape == (11, 3)
    torch.testing.assert_close(position(features), features + position.table[:5])
    torch.testing.assert_close(position(features, 6), features + position.table[6:])
    torch.testing.assert_close(position(features, torch.tensor([0, 4]))[1], features[1] + position.table[4:9])
    position(features, 6).sum().backward()
    assert position.table.grad.sum(-1).tolist() == [0.0] * 6 + [6.0] * 5
    for start, length in ((7, 12), (torch.tensor([0, 8]), 13)):
        with pytest.raises(ShapeError, match=rf"^learned positions end at 11 tokens, got a sequence of {length}$"):
            position(features, start)


@pytest.mark.parametrize(
    ("distances", "buckets", "is_bidirectional"),
    [
        # Of 32 buckets 16 lie to each side, 8 of them for one distance each; beyond, 8 + ⌊8·ln(d/8)/ln(128/8)⌋ up to
        # the last. d = 8: 8 + 0; 11: 8·0.318/2.773 = 0.92, 8; 12: 1.17, 9; 31: 3.91, 11; 32: 4; 127: 7.98, 15; 128 and
        # 1000: 15.
        ([0, -1, -7, -8, -11, -12, -31, -127, -128, -1000], [0, 1, 7, 8, 8, 9, 11, 15, 15, 15], True),
        # keys behind the query have the other 16
        ([1, 7, 8, 12, 1000], [17, 23, 24, 25, 31], True),
        # all 32 to the past, 16 of them for one distance each: d = 23 gives 16 + ⌊16·ln(23/16)/ln(8)⌋ = 16 + ⌊2.79⌋
        ([5, 1, 0, -1, -15, -16, -23, -127, -500], [0, 0, 0, 1, 15, 16, 18, 31, 31], False),
    ],
)
def test_buckets(distances: list[int], buckets: list[int], is_bidirectional: bool) -> None:
    assert RelativeBias(1, bidirectional=is_bidirectional).bucket(torch.tensor(distances)).tolist() == buckets


def test_the_bias_is_the_buckets_number() -> None:
    bias = RelativeBias(2, buckets=4, maximum_distance=3)
    # with 2 buckets to each side: 0 for distance 0, 1 for the past, 2 + 1 for the future
    nn.init.zeros_(bias.table)
    bias.table.data[1], bias.table.data[3] = torch.tensor([10.0, 20.0]), torch.tensor([0.5, 0.25])
    features = torch.zeros(1, 2, 3, 5)
    scores = attend(features, features, torch.eye(3).expand(1, 2, 3, 3), position=bias, normalizer="identity")
    assert scores[0, 0].tolist() == [[0.0, 0.5, 0.5], [10.0, 0.0, 0.5], [10.0, 10.0, 0.0]]
    assert scores[0, 1].tolist() == [[0.0, 0.25, 0.25], [20.0, 0.0, 0.25], [20.0, 20.0, 0.0]]


def test_five_tokens_look_at_distances_up_to_four_alone() -> None:
    bias, features = RelativeBias.for_heads(3), torch.randn(2, 3, 5, 7)
    output = attend(features, features, features, position=bias, implementation="tiled")
    (gradient,) = torch.autograd.grad(output.square().sum(), bias.table)
    assert gradient.abs().sum(-1).nonzero().flatten().tolist() == [0, 1, 2, 3, 4, 17, 18, 19, 20]


def test_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"^relative_bias was made for 3 heads, got 2$"):
        RelativeBias(3).check(2, 7)
    for arguments in ({"buckets": 3}, {"buckets": 32, "maximum_distance": 8}, {"buckets": 1, "bidirectional": False}):
        with pytest.raises(ArgumentError, match=r"^relative_bias cannot distribute"):
            RelativeBias(2, **arguments)
    with pytest.raises(ShapeError, match=r"^rotary rotates pairs of features, so the width must be even, got 5$"):
        Rotary().check(3, 5)
    with pytest.raises(ArgumentError, match=r"^width must be ≥ 1, got 0$"):
        Sinusoidal(0)


@pytest.mark.parametrize("halves", [False, True])
def test_products_depend_on_distance_alone_and_position_zero_turns_nothing(halves: bool) -> None:
    rotary, query, key = Rotary(interleaved=not halves), *torch.randn(2, 1, 1, 1, 6).double()

    def score(p: int, j: int) -> float:
        return Dot()(rotary.rotate(query, torch.tensor([[p]])), rotary.rotate(key, torch.tensor([[j]]))).item()

    assert score(3, 5) == pytest.approx(score(13, 15), abs=1e-5)
    assert score(3, 5) == pytest.approx(score(0, 2), abs=1e-5)
    assert score(5, 3) == pytest.approx(score(7, 5), abs=1e-5)
    assert abs(score(3, 5) - score(3, 6)) > 1e-3
    assert abs(score(3, 5) - score(5, 3)) > 1e-3
    features = torch.randn(2, 3, 7, 4)
    rotated = rotary.rotate(features, torch.arange(7)[None])
    torch.testing.assert_close(rotated.norm(dim=-1), features.norm(dim=-1))
    assert torch.equal(rotated[:, :, 0], features[:, :, 0])
    assert not torch.isclose(rotated[:, :, 1:], features[:, :, 1:]).all(-1).any()


def test_rotary_one_number_by_hand() -> None:
    # base 100, width 4: angles p·1 and p·100^{−1/2} = p/10. At p = 2 the pair (1, 0) turns to (cos 2, sin 2),
    # the pair (0, 1) to (−sin 0.2, cos 0.2)
    features, positions = torch.tensor([[[[1.0, 0.0, 0.0, 1.0]]]]), torch.tensor([[2]])
    rotated = [math.cos(2), math.sin(2), -math.sin(0.2), math.cos(0.2)]
    torch.testing.assert_close(Rotary(100.0).rotate(features, positions).flatten(), torch.tensor(rotated))
    # in halves the pairs are features 0 and 2, 1 and 3: (1, 0) and (0, 1) once more, laid out otherwise
    actual = Rotary(100.0, interleaved=False).rotate(features, positions).flatten()
    torch.testing.assert_close(actual, torch.tensor([rotated[0], rotated[2], rotated[1], rotated[3]]))


def test_rotary_is_exact_in_float64() -> None:
    features, positions = torch.eye(4).double()[None, None], torch.tensor([[11, 12, 13, 14]])
    rotated = Rotary(interleaved=False).rotate(features, positions)[0, 0]
    for row, angle in ((0, 11), (1, 12 / 100)):
        assert rotated[row, row].item() == pytest.approx(math.cos(angle), rel=1e-14)
        assert rotated[row, row + 2].item() == pytest.approx(math.sin(angle), rel=1e-14)


@pytest.mark.parametrize(
    ("dtype", "transposed"), [(torch.float64, False), (torch.float32, True), (torch.bfloat16, True)]
)
def test_with_gradients_the_same_turn(dtype: torch.dtype, transposed: bool) -> None:
    features = torch.randn(2, 5, 3, 6, dtype=dtype).transpose(1, 2)
    features = features if transposed else features.contiguous()
    positions = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    leaf = features.detach().requires_grad_()
    rotated, rotary = Rotary().rotate(leaf, positions), Rotary()
    assert rotated.dtype == dtype
    torch.testing.assert_close(rotated.detach(), rotary.rotate(features, positions))
    # turning back is the gradient
    up = torch.randn(2, 3, 5, 6, dtype=dtype)
    (gradient,) = torch.autograd.grad(rotated, leaf, up)
    torch.testing.assert_close(gradient, rotary.rotate(up, -positions))


LAYOUTS: dict[str, Callable[[Callable[..., Tensor]], Tensor]] = {
    "transposed": lambda randn: randn(2, 3, 6, 5).mT,
    "sliced rows": lambda randn: randn(2, 3, 5, 7)[..., :6],
    "odd storage offset": lambda randn: randn(2 * 3 * 5 * 6 + 1)[1:].view(2, 3, 5, 6),
    "every second feature": lambda randn: randn(2, 3, 5, 12)[..., ::2],
    "expanded": lambda randn: randn(1, 1, 5, 6).expand(2, 3, 5, 6),
    "no features": lambda randn: randn(2, 3, 5, 0),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_gradients(layout: str, dtype: torch.dtype) -> None:
    features = LAYOUTS[layout](partial(torch.randn, dtype=dtype))
    leaf, plain = features.detach().requires_grad_(), features.contiguous().clone().requires_grad_()
    assert leaf.stride() == features.stride()
    actual, expected = (attend(part, part, part, position="rotary") for part in (leaf, plain))
    torch.testing.assert_close(actual, expected)
    up = torch.randn_like(expected)
    torch.testing.assert_close(torch.autograd.grad(actual, leaf, up)[0], torch.autograd.grad(expected, plain, up)[0])


def test_waves_by_hand() -> None:
    # width 4: angles p and p/10000^{2/4} = p/100
    expected = [math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)]
    torch.testing.assert_close(waves(torch.tensor([3]), 4), torch.tensor([expected]))
    # an odd width ends in a sine, of p/10000^{2/3} = p/464.1589
    expected = [math.sin(3), math.cos(3), math.sin(3 / 464.1589)]
    torch.testing.assert_close(waves(torch.tensor([3]), 3), torch.tensor([expected]))


def test_waves_are_added_from_the_start_on() -> None:
    position, features = Sinusoidal(5), torch.randn(2, 7, 5)
    output = position(features)
    torch.testing.assert_close(output - features, waves(torch.arange(7), 5).expand(2, 7, 5))
    torch.testing.assert_close(position(features[:, 3:], 3), output[:, 3:])
    rows = position(features[:, :2], torch.tensor([0, 4]))
    torch.testing.assert_close(rows[1] - features[1, :2], waves(torch.tensor([4, 5]), 5))
    assert position(features.bfloat16()).dtype == torch.bfloat16
