"""A sink: a logit without a value in each head's softmax, in every implementation that has one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import attent
from attent.attention import masks
from attent.attention.multihead import MultiHeadAttention
from attent.attention.scores import Dot
from attent.errors import ArgumentError, DeviceError, ImplementationError, ShapeError

BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 4, 5, 7, 8
SHAPES = ((BATCH, HEADS, QUERIES, WIDTH), (BATCH, 2, KEYS, WIDTH), (BATCH, 2, KEYS, 3))
TABLE = torch.rand(BATCH, 1, QUERIES, KEYS, generator=torch.Generator().manual_seed(5)) < 0.5
TABLE[0, 0, 2] = False
ARGUMENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": "causal"},
    "a query without keys": {"mask": TABLE},
    "window and first tokens": {"mask": masks.Window(1, 0) | masks.Prefix(1)},
    "lengths": {"lengths": torch.tensor([7, 4]), "query_start": 2},
    "soft cap": {"soft_cap": 2.0},
    "positions": {"position": "alibi", "mask": "causal"},
}


def drawn(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in (*SHAPES, (HEADS,))]
    return [tensor.to(dtype).requires_grad_() for tensor in inputs]


def by_an_added_key(query: Tensor, key: Tensor, value: Tensor, sink: Tensor, **arguments: Any) -> tuple[Tensor, Tensor]:
    """Contexts and weights by the definition: the softmax over one more column, which is then left out."""
    steps = attent.attention.reference.steps(*attent.attention.prepare(query, key, value, **arguments))
    scores = next(steps[name] for name in ("masked", "biased", "capped", "scores") if name in steps)
    column = sink[None, :, None, None].expand(*scores.shape[:3], 1)
    weights = torch.cat((scores, column), -1).softmax(-1)[..., :-1]
    return weights @ value.repeat_interleave(HEADS // value.shape[1], 1), weights


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize(
    ("implementation", "dtype"),
    [
        ("reference", torch.float64),
        ("tiled", torch.float64),
        pytest.param("dense", torch.float32, marks=pytest.mark.needs_native),
        pytest.param("dense", torch.bfloat16, marks=pytest.mark.needs_native),
    ],
)
def test_contexts_gradients_and_maps_are_those_of_an_added_key(
    name: str, implementation: str, dtype: torch.dtype
) -> None:
    *sides, sink = drawn(dtype)
    inputs = [*sides, sink if dtype == torch.float64 else sink.float().detach().requires_grad_()]
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    expected, weights = by_an_added_key(*exact, **ARGUMENTS[name])
    context, maps = attent.attend(
        *inputs[:3], sink=inputs[3], **ARGUMENTS[name], implementation=implementation, return_map=True
    )
    gradient = torch.randn(expected.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    results = (context, *torch.autograd.grad(context, inputs, gradient.to(dtype)))
    references = (expected, *torch.autograd.grad(expected, exact, gradient))
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    for result, reference in zip(results, references, strict=True):
        scale = float(reference.detach().abs().max())
        torch.testing.assert_close(result.double(), reference, atol=tolerance * scale, rtol=0)
    assert not maps.is_distribution
    torch.testing.assert_close(maps.dense().double(), weights, atol=1e-6, rtol=0)
    torch.testing.assert_close(maps[0, 1, 3].double(), weights[0, 1, 3], atol=1e-6, rtol=0)
    torch.testing.assert_close(maps.received().double(), weights.sum(-2), atol=1e-5, rtol=0)


@pytest.mark.parametrize("score", ["additive", "gaussian", lambda query, key: -torch.cdist(query, key)])
def test_scores_of_every_form_take_a_sink(score: Any) -> None:
    query, key, value, sink = drawn()
    key, value = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
    score = attent.attention.choices.score_for(score, WIDTH, WIDTH, HEADS).double() if score == "additive" else score
    expected, _ = by_an_added_key(query, key, value, sink, score=score)
    torch.testing.assert_close(attent.attend(query, key, value, score=score, sink=sink), expected)


def test_sinks_may_be_of_any_size() -> None:
    sides = [tensor.detach().float() for tensor in drawn()[:3]]
    for size, share in ((-1e30, 1.0), (-200.0, 1.0), (200.0, 0.0), (1e30, 0.0)):
        for implementation in ("reference", "tiled", *(["dense"] if attent.ops.native.library() else [])):
            sink = torch.full((HEADS,), size, requires_grad=True)
            context = attent.attend(*sides, sink=sink, mask=TABLE, implementation=implementation)
            without = attent.attend(*sides, mask=TABLE)
            torch.testing.assert_close(context, share * without)
            (gradient,) = torch.autograd.grad(context.sum(), sink)
            assert gradient.isfinite().all()


@pytest.mark.needs_native
def test_second_derivatives_are_those_of_the_formula() -> None:
    seconds = []
    for implementation in ("dense", "reference"):
        inputs = drawn(torch.float32)
        context = attent.attend(*inputs[:3], sink=inputs[3], implementation=implementation)
        first = torch.autograd.grad(context.square().sum(), inputs, create_graph=True)
        seconds.append(torch.autograd.grad(sum(part.square().sum() for part in first), inputs))
    for dense, reference in zip(*seconds, strict=True):
        torch.testing.assert_close(dense, reference, rtol=1e-3, atol=1e-3)


def test_modules_learn_sinks() -> None:
    torch.manual_seed(0)
    module = MultiHeadAttention(8, 4, sink=True)
    assert module.state_dict()["sink"].shape == (4,)
    assert "sink" not in MultiHeadAttention(8, 4).state_dict()
    features = torch.randn(2, 5, 8)
    output, weights = module(features, return_map=True)
    output.square().sum().backward()
    assert module.sink.grad.abs().min() > 0
    query, key, _ = module._project_query_key_value(features, None, None)
    scores = query @ key.mT / 2**0.5
    torch.testing.assert_close(weights.dense(), scores.exp() / (1 + scores.exp().sum(-1, keepdim=True)))


def test_maps_say_that_their_rows_sum_to_less_than_one() -> None:
    query, key, value, sink = drawn()
    key, value = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
    _, maps = attent.attend(query, key, value, sink=sink, return_map=True)
    assert str(maps).endswith("normalizer=Softmax, with a sink)")
    with pytest.raises(
        ArgumentError, match="the entropy requires a distribution, which Softmax with a sink weights are"
    ):
        maps.entropy()
    with pytest.raises(
        ArgumentError, match="the rollout requires a distribution, which Softmax with a sink weights are"
    ):
        attent.attention.rollout([attent.attend(query, query, query, sink=sink, return_map=True)[1]], [0])


def test_what_is_no_sink_is_refused() -> None:
    query, key, value, sink = drawn()
    for wrong in (sink[:3], sink[None], 0.0, torch.zeros(4, dtype=torch.int64)):
        with pytest.raises(ShapeError, match=r"sink must be floating point, one logit for each head, \(H,\) = \(4,\)"):
            attent.attend(query, key, value, sink=wrong)
    with pytest.raises(ArgumentError, match="a sink is a term of the softmax, which Sparsemax does not have"):
        attent.attend(query, key, value, sink=sink, normalizer="sparsemax")
    with pytest.raises(ImplementationError, match="it has no sink"):
        attent.attend(query, key, value, sink=sink, score=Dot(), implementation="sdpa")
    with pytest.raises(DeviceError, match="sink must be on cpu"):
        attent.attend(query, key, value, sink=torch.zeros(4, device="meta"))
