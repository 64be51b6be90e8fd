"""What the arguments of attention must be."""

from __future__ import annotations

import re
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from attent.attention import attend
from attent.attention.masks import Documents
from attent.attention.scores import ScaledDot
from attent.errors import ArgumentError, AttentError, DTypeError, ShapeError
from attent.ops.eligibility import is_known_true

QUERY, KEY, VALUE = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7), torch.randn(2, 3, 11, 13)
KEYS = torch.randn(1, 2, 67, 8)


SCORES_OF_OTHER_SHAPES = lambda query, key: query @ key.transpose(-2, -1)[..., :4], lambda query, key: 1.0


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"lengths": torch.tensor([True, False])}, DTypeError, "lengths must be whole numbers, got torch.bool"),
        ({"lengths": [3, 12]}, ShapeError, "lengths must be from 0 to Tk = 11, got 3 to 12"),
        ({"lengths": "all"}, ArgumentError, "lengths must be (B,) whole numbers, got 'all'"),
        ({"bias": [[0.0] * 10**5]}, ArgumentError, "bias must be a tensor, got [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ...]]"),
        ({"dropout": "a"}, ArgumentError, "dropout must be in [0, 1), got 'a'"),
        ({"dropout": 0.1, "seed": 1.5}, ArgumentError, "seed must be a whole number, or a tensor that holds one, got"),
        ({"dropout": 0.1, "seed": torch.tensor([1, 2])}, ArgumentError, "seed must be a whole number, or a tensor"),
        ({"soft_cap": "x"}, ArgumentError, "soft_cap must be > 0, got 'x'"),
        ({"query_start": "first"}, ArgumentError, "query_start must be a whole number or (B,) of them, got str"),
        ({"mask": [[True] * 100] * 100}, ArgumentError, "mask must be a name, a Mask or a boolean tensor, got [[True,"),
        ({"score": "a" * 10**5}, ArgumentError, "unknown score 'aaa"),
        ({"score": SCORES_OF_OTHER_SHAPES[0]}, ShapeError, "a score must return (B, H, Tq, Tk) = (2, 3, 5, 11), got"),
        ({"score": SCORES_OF_OTHER_SHAPES[1]}, ShapeError, "a score must return (B, H, Tq, Tk) = (2, 3, 5, 11), got"),
        ({"is_causal": True}, ArgumentError, "attend takes no is_causal: for is_causal=True pass mask='causal'"),
        ({"scale": 0.5}, ArgumentError, "attend takes no scale: for scale=s pass score=attent.attention.scores.Scaled"),
        ({"attn_mask": None}, ArgumentError, "attend takes no attn_mask: pass a boolean attn_mask as mask"),
        ({"dropout_p": 0.1}, ArgumentError, "attend takes no dropout_p: pass dropout_p as dropout, with a seed"),
        ({"enable_gqa": True}, ArgumentError, "attend takes no enable_gqa: key and value may have fewer heads than"),
    ],
)
def test_what_cannot_be_used_is_said(arguments: dict[str, Any], kind: type[AttentError], message: str) -> None:
    with pytest.raises(kind, match=f"^{re.escape(message)}") as caught:
        attend(QUERY, KEY, VALUE, **arguments)
    assert len(str(caught.value)) < 1000


def test_what_pytorch_calls_otherwise_is_what_the_remedy_says() -> None:
    expected = F.scaled_dot_product_attention(QUERY, KEY, VALUE, scale=0.5, is_causal=True)
    torch.testing.assert_close(attend(QUERY, KEY, VALUE, score=ScaledDot(0.5), mask="causal", query_start=0), expected)
    with pytest.raises(TypeError, match="unexpected keyword argument 'causal'"):
        attend(QUERY, KEY, VALUE, causal=True)  # pyright: ignore[reportCallIssue]


def test_leading_axes_are_not_broadcast() -> None:
    message = "query, key and value must have the same number of axes (leading axes are not broadcast), got (5, 7), (1,"
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}"):
        attend(QUERY[0, 0], KEY[:1, 0], VALUE[:1, 0])
    with pytest.raises(ShapeError, match="the same number of axes"):
        attend(QUERY, KEY, VALUE[:, 0])
    with pytest.raises(ShapeError, match=re.escape("key must be (B, …) with B = 1 as in query, got (2, 3, 11, 7)")):
        attend(QUERY[:1], KEY, VALUE)


def test_a_list_of_lengths_and_a_number_of_numpy_will_do() -> None:
    expected = attend(QUERY, KEY, VALUE, lengths=torch.tensor([4, 11]), query_start=6, mask="causal")
    assert attend(QUERY, KEY, VALUE, lengths=[4, 11], query_start=numpy.int64(6), mask="causal").equal(expected)  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_one_packing_serves_sequences_of_several_lengths() -> None:
    packed = Documents(torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2]]))
    output = attend(QUERY, KEY, VALUE, mask=packed, lengths=torch.tensor([7, 11]))
    single = attend(QUERY[:1], KEY[:1], VALUE[:1], mask=packed, lengths=torch.tensor([7]))
    torch.testing.assert_close(output[:1], single)


def test_a_flag_is_read_on_a_cpu_alone() -> None:
    assert is_known_true(lambda: torch.tensor(True), torch.device("cpu"))
    assert not is_known_true(lambda: torch.tensor(False), torch.device("cpu"))
    assert not is_known_true(lambda: pytest.fail("read on an accelerator"), torch.device("meta"))
    with FakeTensorMode():
        assert not is_known_true(lambda: torch.ones(1) > 0, torch.device("cpu"))
    traced: list[bool] = []
    make_fx(lambda tensor: traced.append(is_known_true(lambda: tensor > 0, tensor.device)))(torch.ones(1))
    assert traced == [False]


@pytest.mark.parametrize("bias", [None, torch.zeros(65, 67)])
def test_fake_tensors_and_traces_have_gradients(bias: Tensor | None) -> None:
    def gradient(query: Tensor) -> Tensor:
        return torch.autograd.grad(attend(query, KEYS, KEYS, bias=bias, implementation="sdpa").sum(), query)[0]

    query = torch.randn(1, 2, 65, 8, requires_grad=True)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        assert gradient(fake.from_tensor(query)).shape == query.shape
    torch.testing.assert_close(make_fx(gradient)(query)(query), gradient(query))
