from __future__ import annotations

import pytest
import torch

import attent
from attent.attention.capture.watch import watch
from attent.attention.multihead import MultiHeadAttention
from attent.attention.scores import SCORES
from attent.errors import ArgumentError, UnknownNameError
from attent.views.walk import AttentionTrace, walk, walk_run


def test_a_walk_is_the_formula() -> None:
    found = walk().steps
    query, key, value = (found[name].values for name in "QKV")
    context, weights = attent.attend(query, key, value, return_map=True)
    torch.testing.assert_close(found["weights"].values, weights.dense())
    torch.testing.assert_close(found["output"].values, context)
    assert list(found) == ["X", "Q", "K", "V", "scores", "scaled", "weights", "output"]


def test_by_hand() -> None:
    steps = walk("a b").steps
    x, weights = steps["X"].values[0], walk("a b").parameters
    torch.testing.assert_close(steps["Q"].values[0, 0], x @ weights["W_Q"].values)
    scores = [
        [sum(q * k for q, k in zip(one, two, strict=True)) for two in steps["K"].values[0, 0].tolist()]
        for one in steps["Q"].values[0, 0].tolist()
    ]
    torch.testing.assert_close(steps["scores"].values[0, 0], torch.tensor(scores))
    torch.testing.assert_close(steps["scaled"].values[0, 0], torch.tensor(scores) / 2)


@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax15", "hard"])
def test_rows_of_weights_sum_to_one(normalizer: str) -> None:
    torch.testing.assert_close(walk(normalizer=normalizer, heads=2).steps["weights"].sums, torch.ones(1, 2, 6))


def test_the_same_word_has_the_same_vector_wherever_it_stands() -> None:
    one, other = walk("the cat the", seed=1).steps["X"].values[0], walk("cat the", seed=2).steps["X"].values[0]
    assert torch.equal(one[0], one[2])
    assert torch.equal(one[1], other[0])
    assert not torch.equal(one[0], one[1])


def test_the_seed_decides_the_matrices_and_leaves_other_random_numbers_alone() -> None:
    before = torch.random.get_rng_state()
    one, same, other = walk(seed=1), walk(seed=1), walk(seed=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one.steps["output"].values, same.steps["output"].values)
    assert not torch.equal(one.steps["Q"].values, other.steps["Q"].values)


def test_without_scale_there_is_no_scaled_step() -> None:
    scaled, plain = walk(), walk(scale=False)
    assert "scaled" not in plain.steps
    torch.testing.assert_close(plain.steps["scores"].values, scaled.steps["scores"].values)
    torch.testing.assert_close(plain.steps["weights"].values, scaled.steps["scores"].values.softmax(-1))


@pytest.mark.parametrize("score", SCORES)
def test_every_score_by_name(score: str) -> None:
    found = walk("a b c", score=score, heads=2)
    assert found.steps["weights"].shape == (1, 2, 3, 3)
    assert str(found)


def test_parameters_of_the_score_are_shown() -> None:
    found = walk("a b c", score="additive", heads=2).parameters
    assert found["score.query_weight"].shape == (4, 2)
    assert found["score.query_weight"].rows == ("head0·d1", "head0·d2", "head1·d1", "head1·d2")
    assert found["score.v"].rows == ("head0", "head1")


def test_a_mask_gives_no_weight_to_what_it_hides() -> None:
    weights = walk(mask="causal").steps["weights"].values
    assert torch.equal(weights, weights.tril())


def test_heads_side_by_side_are_as_wide_as_the_words() -> None:
    found = walk(heads=2).steps
    assert found["merged"].shape == found["X"].shape
    assert torch.equal(found["merged"].values[0, :, 2:], found["output"].values[0, 1])


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"text": " "}, "at least one word"),
        ({"heads": 3}, "heads must divide the width, 4, got 3"),
        ({"width": 0}, "width must be ≥ 1"),
        ({"scale": False, "score": "cosine"}, "only the scaled dot product has a scale"),
    ],
)
def test_what_cannot_be_walked_through(how: dict, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        walk(**how)


def test_an_unknown_score() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'additive'"):
        walk(score="aditive")


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize(
    "settings", [{}, {"score": "additive", "position": "alibi"}, {"position": "rotary", "key_value_heads": 1, "width": 6}]
)
def test_a_run_is_walked_through_with_the_numbers_that_watch_sees(untrained, kind: str, settings: dict) -> None:
    translator = untrained(**settings)
    found = walk_run(translator, "abc", kind=kind, layer=0, head=2)
    target = translator.translate(["abc"])[0]
    name = {"encoder": "encoder.layers.0.self_attention", "decoder": "decoder.layers.0.self_attention"}.get(kind)
    seen = translator.map("abc", target)[name or "decoder.layers.0.cross_attention"]
    torch.testing.assert_close(found.steps["weights"].values, seen.weights.dense())
    assert found.steps["weights"].rows == seen.rows
    assert found.steps["weights"].columns == seen.columns
    assert ("M" in found.steps) is (kind == "cross")
    assert f"head 2, step by step: abc → {target}" in f"{found.title} "


def test_what_a_run_does_not_have(translator) -> None:
    with pytest.raises(ArgumentError, match="layer must be from 0 to 1, got 2"):
        walk_run(translator, "abc", layer=2)
    with pytest.raises(ArgumentError, match="head must be from 0 to 2, got 3"):
        walk_run(translator, "abc", head=3)
    with pytest.raises(ArgumentError, match="empty source"):
        walk_run(translator, "")


T, M = ("t0", "t1", "t2"), ("m0", "m1", "m2", "m3", "m4")


def heard(attention: MultiHeadAttention, given: torch.Tensor, *memory: torch.Tensor, **how: object):
    attention.eval()
    with torch.no_grad(), AttentionTrace(attention) as listening, watch(attention) as seen:
        result = attention(given, *memory, **how)
    return listening.steps(seen[""], T, M if memory else T), result


def test_the_last_step_is_what_the_attention_returned() -> None:
    steps, result = heard(MultiHeadAttention(12, 3), torch.randn(1, 3, 12))
    torch.testing.assert_close(steps["result"].values, result)
    assert list(steps) == ["X", "Q", "K", "V", "scores", "scaled", "weights", "output", "merged", "result"]


def test_the_steps_follow_from_each_other() -> None:
    attention = MultiHeadAttention(12, 3)
    steps, _ = heard(attention, torch.randn(1, 3, 12), mask="causal")
    projected = attention.query_projection(steps["X"].values).unflatten(-1, (3, 4)).transpose(1, 2)
    torch.testing.assert_close(steps["Q"].values, projected)
    torch.testing.assert_close(steps["scores"].values, steps["Q"].values @ steps["K"].values.mT)
    torch.testing.assert_close(steps["weights"].values, steps["masked"].values.softmax(-1))
    torch.testing.assert_close(steps["output"].values, steps["weights"].values @ steps["V"].values)


def test_a_memory_is_a_step_of_its_own() -> None:
    steps, _ = heard(MultiHeadAttention(12, 3, memory_width=8), torch.randn(1, 3, 12), torch.randn(1, 5, 8))
    assert steps["M"].shape == (1, 5, 8)
    assert steps["K"].equation == "K = M·W_K + b_K, cut into 3 heads"
    assert steps["K"].rows == M


def test_shared_heads_are_shown_for_each_head() -> None:
    steps, _ = heard(MultiHeadAttention(12, 4, key_value_heads=2), torch.randn(1, 3, 12))
    assert steps["K"].shape == (1, 4, 3, 3)
    assert steps["K"].equation.endswith("cut into 2 heads, each for 2 heads of queries")


@pytest.mark.parametrize("score", ["scaled_dot", "additive", "general", "gaussian", "gated"])
@pytest.mark.parametrize("position", [None, "rotary", "alibi"])
def test_what_is_recalled_from_a_cache_has_the_steps_of_what_is_not(score: str, position: str | None) -> None:
    attention = MultiHeadAttention(12, 2, score=score, position=position).eval()
    given = torch.randn(1, 3, 12)
    direct, _ = heard(attention, given)
    with torch.no_grad(), AttentionTrace(attention) as listening, watch(attention) as seen:
        attention.recall(given, attention.remember(given))
    cached = listening.steps(seen[""], T, T)
    torch.testing.assert_close(cached["result"].values, direct["result"].values)
    torch.testing.assert_close(cached["weights"].values, direct["weights"].values)
    if position != "rotary":
        assert list(cached) == list(direct)


def test_hooks_are_taken_away_again() -> None:
    attention = MultiHeadAttention(4, 1)
    heard(attention, torch.randn(1, 3, 4))
    assert not any(module._forward_hooks for module in attention.modules())
