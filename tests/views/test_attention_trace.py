from __future__ import annotations

import pytest
import torch

from attent.attention.capture.watch import watch
from attent.attention.multihead import MultiHeadAttention
from attent.views.trace import AttentionTrace

T, M = ("t0", "t1", "t2"), ("m0", "m1", "m2", "m3", "m4")


def trace_call(attention: MultiHeadAttention, tensor: torch.Tensor, *memory: torch.Tensor, **options: object):
    attention.eval()
    with torch.no_grad(), AttentionTrace(attention) as listening, watch(attention) as captured:
        result = attention(tensor, *memory, **options)
    return listening.steps(captured[""], T, M if memory else T), result


def test_the_last_step_is_what_the_attention_returned() -> None:
    steps, result = trace_call(MultiHeadAttention(12, 3), torch.randn(1, 3, 12))
    torch.testing.assert_close(steps["result"].values, result)
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


def test_shared_heads_are_shown_for_each_head() -> None:
    steps, _ = trace_call(MultiHeadAttention(12, 4, key_value_heads=2), torch.randn(1, 3, 12))
    assert steps["K"].shape == (1, 4, 3, 3)
    assert steps["K"].equation.endswith("cut into 2 heads, each for 2 heads of queries")


@pytest.mark.parametrize("score", ["scaled_dot", "additive", "general", "gaussian", "gated"])
@pytest.mark.parametrize("position", [None, "rotary", "alibi"])
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


def test_hooks_are_taken_away_again() -> None:
    attention = MultiHeadAttention(4, 1)
    trace_call(attention, torch.randn(1, 3, 4))
    assert not any(module._forward_hooks for module in attention.modules())
