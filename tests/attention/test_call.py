from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import arguments, prepare
from attent.attention.base import LoweredSide
from attent.attention.call import lower_key
from attent.attention.masks import Causal
from attent.attention.positions import Alibi, RelativeBias, Rotary
from attent.attention.scores import Additive, Dot, Gaussian, General
from attent.errors import ArgumentError, DeviceError, DTypeError, ShapeError

dice = torch.Generator().manual_seed(1)
QUERY, KEY, VALUE = (torch.randn(2, 4, *shape, generator=dice) for shape in ((5, 3), (7, 3), (7, 11)))


def test_every_tensor_gets_four_axes() -> None:
    call, query, key, value = prepare(QUERY, KEY, VALUE)
    assert (call.batch, call.heads, call.key_heads, call.queries, call.keys) == (2, 4, 4, 5, 7)
    assert (call.query_width, call.value_width, call.axes, call.lowered) == (3, 11, 4, False)
    for at, shape in (((slice(None), 0), (2,)), ((0, 0), ())):
        call, query, key, value = prepare(QUERY[at], KEY[at], VALUE[at])
        batch = shape[0] if shape else 1
        assert (query.shape, key.features.shape) == ((batch, 1, 5, 3), (batch, 1, 7, 3))
        assert value.shape == (batch, 1, 7, 11)
        assert call.restore_axes(query).shape == (*shape, 5, 3)
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        assert prepare(*(tensor.to(dtype) for tensor in (QUERY, KEY, VALUE))).call.accumulation_dtype == exact


def test_calls_of_names_alone_are_remembered_and_still_checked() -> None:
    def is_remembered(query: Tensor = QUERY, **more: Any) -> bool:
        hits = arguments._cached_call.cache_info().hits
        prepare(query, KEY, VALUE, **more)
        return arguments._cached_call.cache_info().hits > hits

    prepare(QUERY, KEY, VALUE, mask="causal")
    assert is_remembered(KEY[:, :, :5] * 2, mask="causal")
    assert not is_remembered(mask=Causal())
    for more in ({"query_start": 0}, {"soft_cap": 2.0}, {"score": Dot()}, {"lengths": torch.tensor([7, 7])}):
        assert not is_remembered(mask="causal", **more)
    assert prepare(QUERY, KEY, VALUE).call.mask is None
    assert isinstance(prepare(QUERY, KEY, VALUE, mask="causal", score="dot").call.score, Dot)
    assert prepare(QUERY.double(), KEY.double(), VALUE.double(), mask="causal").call.dtype == torch.float64
    assert prepare(QUERY[:, 0], KEY[:, 0], VALUE[:, 0]).call.axes == 3
    assert prepare(QUERY[:, :1], KEY[:, :1], VALUE[:, :1]).call.axes == 4
    for _ in range(2):
        with pytest.raises(ShapeError):
            prepare(QUERY, KEY[:, :, :6], VALUE, mask="causal")
        with pytest.raises(ArgumentError):
            prepare(QUERY, KEY, VALUE, mask="causal", query_start=True)


def test_shared_keys_are_spread_in_runs() -> None:
    call = prepare(QUERY, KEY[:, :2], VALUE[:, :2]).call
    assert (call.heads, call.key_heads) == (4, 2)
    assert torch.equal(call.repeat_kv(KEY[:, :2]), KEY[:, [0, 0, 1, 1]])
    side = call.repeat_kv_side(LoweredSide(KEY[:, :2], bias=KEY[:, :2, :, 0]))
    assert torch.equal(side.bias, KEY[:, [0, 0, 1, 1], :, 0])
    assert side.center is None


def test_queries_stand_at_the_end_unless_said() -> None:
    lengths = torch.tensor([6, 3])

    def positions(**more: Any) -> list[list[int]]:
        return prepare(QUERY, KEY, VALUE, **more).call.pairs().query_position.tolist()

    assert positions() == [[2, 3, 4, 5, 6]]
    assert positions(query_start=0) == [[0, 1, 2, 3, 4]]
    assert positions(lengths=lengths) == [[1, 2, 3, 4, 5], [-2, -1, 0, 1, 2]]
    assert positions(lengths=lengths, query_start=torch.tensor([2, 0])) == [[2, 3, 4, 5, 6], [0, 1, 2, 3, 4]]
    assert prepare(QUERY, KEY, VALUE).call.pairs(torch.tensor([3, 1])).query_position.tolist() == [[5, 3]]


def test_a_bias_of_minus_infinity_hides() -> None:
    bias = torch.zeros(5, 7)
    bias[1, 2] = -torch.inf
    call = prepare(QUERY, KEY, VALUE, bias=bias, mask="causal").call
    expected = torch.ones(5, 7).tril(2).bool()
    expected[1, 2] = False
    assert torch.equal(call.allowed(call.pairs())[0, 0], expected)
    assert prepare(QUERY, KEY, VALUE).call.allowed(call.pairs()) is None
    # three axes stand for (B, Tq, Tk) where the tensors have three
    call = prepare(QUERY[:, 0], KEY[:, 0], VALUE[:, 0], bias=torch.randn(2, 5, 7), mask=torch.ones(2, 5, 7).bool()).call
    assert call.bias.shape == call.allowed(call.pairs()).shape == (2, 1, 5, 7)


def test_rotary_turns_both_sides_and_biases_stay_in_the_call() -> None:
    rotary = Rotary()
    query, key = QUERY[..., :2], KEY[..., :2]
    prepared = prepare(query, key, VALUE, position=rotary)
    assert prepared.call.position is None
    torch.testing.assert_close(prepared.query, rotary.rotate(query, torch.arange(2, 7)[None]))
    torch.testing.assert_close(prepared.key.features, rotary.rotate(key, torch.arange(7)[None]))
    # keys from a cache were turned when they were remembered
    assert prepare(query, LoweredSide(key), VALUE, position=rotary).key.features is key
    assert isinstance(prepare(QUERY, KEY, VALUE, position="alibi").call.position, Alibi)


def test_keys_are_lowered_as_a_cache_keeps_them() -> None:
    key = KEY[:, :2].bfloat16()
    assert lower_key(Dot(), key, 4).features is key
    assert lower_key(General(3, 3), key, 4).features.dtype == torch.float32
    additive = Additive(3, 3, 5, heads=4)
    assert lower_key(additive, key, 4).features.shape == (2, 4, 7, 5)
    assert torch.equal(
        lower_key(additive, key, 4).features[:, 1], lower_key(additive, key[:, [0, 0, 1, 1]], 4).features[:, 1]
    )
    center = torch.ones(2, 2, 1, 3)
    assert lower_key(Gaussian(), key, 4, center).center is center
    call = prepare(
        QUERY.bfloat16(), lower_key(General(3, 3), key, 4), VALUE[:, :2].bfloat16(), score=General(3, 3)
    ).call
    assert call.lowered
    assert call.dtype == torch.bfloat16


META, THREE_HEADS = torch.device("meta"), {"key": KEY[:, :3], "value": VALUE[:, :3]}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"query": QUERY.int()}, DTypeError, "query, key and value must be floating point, got torch.int32,"),
        ({"key": KEY.double()}, DTypeError, "query, key and value must have the same dtype, got torch.float32,"),
        ({"key": [1.0]}, ArgumentError, "query, key and value must be tensors, got Tensor, list, Tensor"),
        ({"value": VALUE.to(META)}, DeviceError, "query, key and value must be on the same device, got cpu, cpu, meta"),
        ({"bias": torch.zeros(5, 7, device=META)}, DeviceError, "bias must be on cpu like query, got meta"),
        ({"query_start": torch.zeros(2, device=META).long()}, DeviceError, "query_start must be on cpu like query,"),
        ({"query": QUERY[None]}, ShapeError, "query, key and value must be (B, H, T, D), (B, T, D) or (T, D), got (1,"),
        ({"value": VALUE[:, :, :6]}, ShapeError, "value must be (B, H, Tk, Dv) = (2, 4, 7, Dv) as key, got (2, 4, 6,"),
        (THREE_HEADS, ShapeError, "query heads must be a multiple of key heads, got 4"),
        ({"query": QUERY[..., :2]}, ShapeError, "ScaledDot needs queries and keys of one width, got Dq = 2 and Dk = 3"),
        ({"score": General(3, 5)}, ShapeError, "General was made for widths (query, key) = (3, 5), got (3, 3)"),
        ({"score": General(3, 3, heads=2)}, ShapeError, "General was made for 2 heads, got 4"),
        ({"position": "rotary"}, ShapeError, "rotary rotates pairs of features, so the width must be even, got 3"),
        ({"position": RelativeBias(3)}, ShapeError, "relative_bias was made for 3 heads, got 4"),
        ({"mask": torch.ones(2, 5, 7).bool()}, ShapeError, "mask must be (B|1, H|1, Tq, Tk) = (2, 4, 5, 7), got (2,"),
        ({"mask": torch.ones(5, 7)}, DTypeError, "mask must be boolean, True where a query may attend, got"),
        ({"bias": torch.ones(5, 7).bool()}, DTypeError, "bias must be floating point, got torch.bool; a boolean"),
        ({"bias": torch.ones(2, 5, 7)}, ShapeError, "bias must be (B|1, H|1, Tq|1, Tk|1) = (2, 4, 5, 7), got (2, 5,"),
        ({"bias": torch.ones(3, 1, 5, 7)}, ShapeError, "bias must be (B|1, H|1, Tq|1, Tk|1) = (2, 4, 5, 7), got (3,"),
        ({"lengths": torch.tensor([3, 8])}, ShapeError, "lengths must be from 0 to Tk = 7, got 3 to 8"),
        ({"lengths": torch.tensor([-1, 2])}, ShapeError, "lengths must be from 0 to Tk = 7, got -1 to 2"),
        ({"lengths": torch.tensor([3, 2, 5])}, ShapeError, "lengths must be (B,) = (2,), got (3,)"),
        ({"query_start": torch.tensor([1, 2, 3])}, ShapeError, "query_start must be a whole number or (B,) = (2,) of"),
        ({"query_start": torch.tensor([0.5, 1])}, ShapeError, "query_start must be a whole number or (B,) = (2,) of"),
        ({"query_start": True}, ArgumentError, "query_start must be a whole number or (B,) of them, got bool"),
        ({"dropout": 1.0, "seed": 1}, ArgumentError, "dropout must be in [0, 1), got 1.0"),
        ({"dropout": -0.1, "seed": 1}, ArgumentError, "dropout must be in [0, 1), got -0.1"),
        ({"dropout": 0.5}, ArgumentError, "dropout needs a seed: its mask is a function of (seed, b, h, i, j)"),
        ({"soft_cap": 0.0}, ArgumentError, "soft_cap must be > 0, got 0.0"),
    ],
)
def test_what_does_not_fit_is_said(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="^" + re.escape(message)) as raised:
        prepare(**{"query": QUERY, "key": KEY, "value": VALUE} | changed)
    assert type(raised.value) is error


def test_a_key_of_another_dtype_is_taken_only_lowered_and_by_autocast() -> None:
    query, value = QUERY.bfloat16(), VALUE.bfloat16()
    with pytest.raises(DTypeError, match=r"got torch.bfloat16, torch.float32, torch.bfloat16$"):
        prepare(query, KEY, value)
    assert prepare(query, LoweredSide(KEY), value).key.features.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert prepare(query, LoweredSide(KEY), value).key.features.dtype == torch.float32
        assert prepare(QUERY, KEY, VALUE).call.dtype == torch.float32
        call, query, key, value = prepare(QUERY, KEY.bfloat16(), VALUE)
        assert call.dtype == query.dtype == key.features.dtype == value.dtype == torch.bfloat16
