from __future__ import annotations

import re
from functools import partial

import pytest
import torch

from attent.attention import reference
from attent.attention.arguments import prepare
from attent.attention.base import Score
from attent.attention.capture.watch import watch
from attent.attention.choices import Own
from attent.attention.multihead import MultiHeadAttention
from attent.attention.scores import SCORES, Dot, Gated
from attent.layers.feed_forward import FeedForward
from attent.layers.residual import Residual, Stream
from attent.views.step import WalkStep, equation_of, features, formula_steps, vectors
from attent.views.trace import AttentionTrace, feed_forward_steps, norm_step, output_steps, residual_steps

ROWS, COLUMNS = ("r0", "r1"), ("c0", "c1", "c2")


def steps(**options: object) -> dict[str, WalkStep]:
    query, key, value = torch.randn(1, 1, 2, 5), torch.randn(1, 1, 3, 5), torch.randn(1, 1, 3, 7)
    prepared = prepare(query, key, value, **options)
    step_values = reference.steps(*prepared)
    return {step.name: step for step in formula_steps(prepared.call, step_values, query, key, ROWS, COLUMNS)}


@pytest.mark.parametrize("name", SCORES)
def test_every_score_has_an_equation(name: str) -> None:
    equation = equation_of(SCORES[name].for_widths(5, 5, 1))
    assert re.fullmatch(r"score\(q, kⱼ?\) = .+", equation)
    assert SCORES[name].__name__ not in equation, "the fallback for scores that say nothing"


def test_the_scaled_dot_product_is_told_as_textbooks_tell_it() -> None:
    step_values = steps()
    assert list(step_values) == ["scores", "scaled", "weights", "output"]
    assert step_values["scaled"].equation == "scaled = scores / √Dk = scores / √5"
    assert str(step_values["scores"]) == "scores = Q·Kᵀ   (B, H, Tq, Tk) = (1, 1, 2, 3)"
    torch.testing.assert_close(step_values["scaled"].values * 5**0.5, step_values["scores"].values)
    step_values = steps()
    torch.testing.assert_close(step_values["weights"].sums, torch.ones(1, 1, 2))
    assert step_values["scores"].sums is None
    assert "every row sums to 1" in step_values["weights"].meaning
    assert "need not sum to 1" in steps(normalizer="sigmoid")["weights"].meaning
    scores = steps(score="dot")["scores"]
    assert scores.example.startswith("scores[r1, c0] = (")
    assert scores.example.endswith(f" = {scores.values[0, 0, 1, 0]:.2f}")


def test_every_step_of_a_call_is_there() -> None:
    step_values = steps(score=Dot(), soft_cap=3.0, bias=torch.zeros(2, 3), mask="causal", dropout=0.5, seed=1)
    assert list(step_values) == ["scores", "capped", "biased", "masked", "weights", "dropped", "output"]
    assert step_values["output"].equation == "output = dropped·V"
    # a mask that hides nothing is no step
    assert "masked" not in steps(mask=torch.ones(2, 3, dtype=torch.bool))
    hidden = steps(score=SCORES["additive"].for_widths(5, 5, 1))["hidden"]
    assert (hidden.rows, hidden.columns) == (COLUMNS, features(5))
    assert features(3) == vectors("X", "X", "", "(T, E)", torch.zeros(2, 3), ROWS).columns == ("d1", "d2", "d3")


def test_a_score_of_ones_own_is_shown_by_its_numbers() -> None:
    class Doubled(Score):
        """Twice the product."""

        def steps(self, query: torch.Tensor, key: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"twice": 2 * query, "scores": 2 * query @ key.mT}

    step_values = steps(score=Doubled())
    assert step_values["twice"].shape == (1, 1, 2, 5)
    assert step_values["scores"].equation == "scores[i, j] = score(Q[i], K[j]),  score(q, k) = Doubled(q, k)"


def distance(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return -torch.cdist(query, key)


def test_a_score_that_is_a_function_has_its_name() -> None:
    named = {"distance": distance, "partial": partial(distance), "f": lambda q, k: distance(q, k), "gated": Gated(5, 5)}
    for name, function in named.items():
        assert f"= {name}(" in equation_of(Own(function)).lower()


T, M = ("t0", "t1", "t2"), ("m0", "m1", "m2", "m3", "m4")


def trace_call(attention: MultiHeadAttention, tensor: torch.Tensor, *memory: torch.Tensor, **options: object):
    attention.eval()
    with torch.no_grad(), AttentionTrace(attention) as listening, watch(attention) as captured:
        result = attention(tensor, *memory, **options)
    return listening.steps(captured[""], T, M if memory else T), result


def test_the_last_step_is_what_the_attention_returned() -> None:
    attention = MultiHeadAttention(12, 3)
    steps, result = trace_call(attention, torch.randn(1, 3, 12))
    torch.testing.assert_close(steps["result"].values, result)
    assert not any(module._forward_hooks for module in attention.modules())
    assert list(steps) == ["X", "Q", "K", "V", "scores", "scaled", "weights", "output", "merged", "result"]


def test_the_steps_follow_from_each_other() -> None:
    attention = MultiHeadAttention(12, 3)
    steps, _ = trace_call(attention, torch.randn(1, 3, 12), mask="causal")
    projected = attention.query_projection(steps["X"].values).unflatten(-1, (3, 4)).transpose(1, 2)
    torch.testing.assert_close(steps["Q"].values, projected)
    torch.testing.assert_close(steps["scores"].values, steps["Q"].values @ steps["K"].values.mT)
    torch.testing.assert_close(steps["weights"].values, steps["masked"].values.softmax(-1))
    torch.testing.assert_close(steps["output"].values, steps["weights"].values @ steps["V"].values)


def test_a_memory_is_a_step_of_its_own() -> None:
    steps, _ = trace_call(MultiHeadAttention(12, 3, memory_width=8), torch.randn(1, 3, 12), torch.randn(1, 5, 8))
    assert steps["M"].shape == (1, 5, 8)
    assert steps["K"].equation == "K = M·W_K + b_K, cut into 3 heads"
    assert steps["K"].rows == M
    # shared heads are shown for each head
    steps, _ = trace_call(MultiHeadAttention(12, 4, key_value_heads=2), torch.randn(1, 3, 12))
    assert steps["K"].shape == (1, 4, 3, 3)
    assert steps["K"].equation.endswith("cut into 2 heads, each for 2 heads of queries")


@pytest.mark.parametrize(
    ("score", "position"),
    [("scaled_dot", "rotary"), ("additive", None), ("general", "alibi"), ("gaussian", None), ("gated", "alibi")],
)
def test_what_is_recalled_from_a_cache_has_the_steps_of_what_is_not(score: str, position: str | None) -> None:
    attention = MultiHeadAttention(12, 2, score=score, position=position).eval()
    inputs = torch.randn(1, 3, 12)
    direct, _ = trace_call(attention, inputs)
    with torch.no_grad(), AttentionTrace(attention) as listening, watch(attention) as captured:
        attention.recall(inputs, attention.remember(inputs))
    cached = listening.steps(captured[""], T, T)
    torch.testing.assert_close(cached["result"].values, direct["result"].values)
    torch.testing.assert_close(cached["weights"].values, direct["weights"].values)
    if position != "rotary":
        assert list(cached) == list(direct)


NAMES = ("a", "b", "c")


def test_the_steps_are_those_of_the_layer() -> None:
    inputs = vectors("X", "X", "", "(B, T, E)", torch.randn(1, 3, 5), NAMES)
    module = FeedForward(5, 7, activation="gelu")
    for norm in ("post", "pre"):
        around = Residual(5, norm)
        torch.nn.init.normal_(around.norm.weight)
        stream, read = around.enter(Stream(inputs.values))
        expected = around.leave(stream, module(read))
        inner = norm_step("norm", inputs, around.norm) if around.pre else inputs
        output = feed_forward_steps(inner, module)[-1]
        last = residual_steps(inputs, output, around)[-1]
        ending = expected.features if expected.output is None else expected.features + expected.output
        torch.testing.assert_close(last.values, ending)
    assert feed_forward_steps(inputs, module)[0].equation == "wide = gelu(X·W₁ + b₁)"


def test_a_norm_says_mean_and_variance() -> None:
    values = torch.tensor([[[1.0, 3.0], [5.0, 5.0]]])
    step = norm_step("norm", vectors("X", "X", "", "(B, T, E)", values, ("a", "b")), torch.nn.LayerNorm(2))
    assert step.example == "X[a] has mean 2.00 and variance 1.00"
    torch.testing.assert_close(step.values, torch.tensor([[[-1.0, 1.0], [0.0, 0.0]]]), atol=1e-4, rtol=0)


def test_the_likeliest_of_some_rows() -> None:
    features = vectors("X", "X", "", "(B, T, E)", torch.randn(1, 3, 5), NAMES)
    scores = torch.tensor([0.0, 3.0, 1.0, 2.0, -1.0, -2.0, 0.5]).expand(1, 3, 7)
    logits, probabilities = output_steps(features, scores, "uvwxyzq".__getitem__, [1], "words")
    assert logits.cells == probabilities.cells == (("v", "x", "w", "q", "u"),)
    assert (logits.values[0, 0].tolist(), logits.rows) == ([3.0, 2.0, 1.0, 0.5, 0.0], ("b",))
    torch.testing.assert_close(probabilities.values[0, 0], scores[0, 0].softmax(-1)[[1, 3, 2, 6, 0]])
    (fewer, _) = output_steps(features, scores[..., :2], "uv".__getitem__, None, "classes")
    assert (fewer.rows, fewer.columns) == (NAMES, ("1.", "2."))
