from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention import attend
from attent.attention.base import LoweredSide
from attent.attention.cache import KeyValueCache
from attent.attention.capture.watch import watch
from attent.attention.multihead import MultiHeadAttention
from attent.attention.scores import SCORES, Gaussian
from attent.errors import ArgumentError, ShapeError


def test_it_equals_as_many_separate_heads() -> None:
    attention = MultiHeadAttention(10, 5, memory_width=7, value_head_width=3)
    query, memory, merged = torch.randn(2, 11, 10), torch.randn(2, 13, 7), []
    projections = attention.query_projection, attention.key_projection, attention.value_projection
    for head in range(5):
        parts = [(part.weight.chunk(5)[head].T, part.bias.chunk(5)[head]) for part in projections]
        sides = zip((query, memory, memory), parts, strict=True)
        merged.append(attend(*(features @ weight + bias for features, (weight, bias) in sides)))
    attention.output = None
    torch.testing.assert_close(attention(query, memory), torch.cat(merged, -1))


def test_one_number_by_hand() -> None:
    attention = MultiHeadAttention(1, 1, bias=False, output=None)
    for projection, number in (
        (attention.query_projection, 1.0),
        (attention.key_projection, math.log(3)),
        (attention.value_projection, 8.0),
    ):
        nn.init.constant_(projection.weight, number)
    # tokens 1 and 0: keys ln 3 and 0, values 8 and 0; the query 1 weighs them 3 : 1, the query 0 alike: ¾·8 = 6 and
    # ½·8 = 4
    torch.testing.assert_close(attention(torch.tensor([[[1.0], [0.0]]])), torch.tensor([[[6.0], [4.0]]]))


@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
def test_shared_heads_equal_repeated_ones(score: str) -> None:
    shared = MultiHeadAttention(6, 6, key_value_heads=2, value_head_width=3, score=score)
    full = MultiHeadAttention(6, 6, value_head_width=3, score=score)
    state = shared.state_dict()
    for name in ("key", "value"):
        for kind in ("weight", "bias"):
            path = f"{name}_projection.{kind}"
            state[path] = state[path].unflatten(0, (2, -1)).repeat_interleave(3, 0).flatten(0, 1)
    full.load_state_dict(state)
    query, memory = torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    torch.testing.assert_close(shared(query, memory), full(query, memory))


@pytest.mark.parametrize("position", [None, "rotary", "alibi", "relative_bias"])
def test_padding_and_neighbours_do_not_matter(position: str | None) -> None:
    attention = MultiHeadAttention(6, 3, position=position).double()
    features, lengths = torch.randn(2, 7, 6).double(), torch.tensor([7, 4])
    features[1, 4:] = torch.nan
    for mask in (None, "causal"):
        joint = attention(features, lengths=lengths, mask=mask)
        for index, length in enumerate(lengths):
            single = attention(features[index : index + 1, :length], mask=mask)
            torch.testing.assert_close(joint[index, :length], single[0])


@pytest.mark.parametrize("position", [None, "rotary"])
def test_a_memory_remembered_once_serves_every_query(position: str | None) -> None:
    attention = MultiHeadAttention(6, 3, memory_width=5, value_memory_width=7, position=position)
    query, memory, values = torch.randn(2, 3, 6), torch.randn(2, 11, 5), torch.randn(2, 11, 7)
    cache = attention.remember(memory, value_memory=values)
    arguments = {"lengths": torch.tensor([11, 2]), "query_start": 4, "bias": torch.randn(3, 11)}
    torch.testing.assert_close(
        attention.recall(query, cache, **arguments), attention(query, memory, values, **arguments)
    )


@pytest.mark.parametrize(
    "arguments",
    [{}, {"bias": False}, {"kdim": 5}, {"kdim": 5, "vdim": 7}, {"vdim": 7, "bias": False, "batch_first": False}],
    ids=str,
)
def test_from_torch_agrees(arguments: dict[str, Any]) -> None:
    original = nn.MultiheadAttention(6, 3, **{"batch_first": True} | arguments).double().eval()
    for name, parameter in original.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    converted = MultiHeadAttention.from_torch(original)
    assert not converted.training
    width, value_width = arguments.get("kdim", 6), arguments.get("vdim", 6)
    query = torch.randn(2, 5, 6).double()
    memory, values = torch.randn(2, 7, width).double(), torch.randn(2, 7, value_width).double()
    hidden = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    above = torch.ones(5, 7).triu(3).bool()

    def run_original(*tensors: Tensor, **masks: Tensor) -> Tensor:
        if original.batch_first:
            return original(*tensors, need_weights=False, **masks)[0]
        return original(*(tensor.transpose(0, 1) for tensor in tensors), need_weights=False, **masks)[0].transpose(0, 1)

    torch.testing.assert_close(converted(query, memory, values), run_original(query, memory, values))
    torch.testing.assert_close(
        converted(query, memory, values, lengths=torch.tensor([7, 4]), mask="causal", query_start=2),
        run_original(query, memory, values, key_padding_mask=hidden, attn_mask=above),
    )
    if width == value_width == 6:
        torch.testing.assert_close(converted(query), run_original(query, query, query))
        torch.testing.assert_close(
            converted(query, mask="causal"),
            run_original(query, query, query, attn_mask=torch.ones(5, 5).triu(1).bool()),
        )


def test_from_torch_copies() -> None:
    original = nn.MultiheadAttention(6, 3, dropout=0.3)
    converted = MultiHeadAttention.from_torch(original)
    assert converted.dropout == 0.3
    nn.init.zeros_(original.in_proj_weight)
    assert converted.query_projection.weight.count_nonzero() == 36
    for arguments in ({"add_bias_kv": True}, {"add_zero_attn": True}):
        with pytest.raises(ArgumentError, match="from_torch does not support bias_k, bias_v or add_zero_attn"):
            MultiHeadAttention.from_torch(nn.MultiheadAttention(6, 3, **arguments))


def test_widths_that_cannot_be_shared_out_and_features_that_do_not_fit() -> None:
    for arguments, message in (
        ({"query_width": 7, "heads": 2}, r"^2 heads do not divide a width of 7; give key_head_width"),
        ({"query_width": 6, "heads": 0}, r"^0 heads do not divide a width of 6; give key_head_width"),
        ({"query_width": 6, "heads": 3, "key_value_heads": 2}, r"^key_value_heads must divide heads = 3, got 2"),
    ):
        with pytest.raises(ArgumentError, match=message):
            MultiHeadAttention(**arguments)
    attention = MultiHeadAttention(6, 3, memory_width=5)
    for shapes, message in (
        ([(2, 7, 6)], r"^features must be \(B, T, 5\), got \(2, 7, 6\)$"),
        ([(7, 6), (2, 7, 5)], r"^features of a single sequence must be \(T, E\), like the query,"),
        ([(2, 7, 6), (7, 5)], r"^features must be \(B, T, 5\), got \(7, 5\)$"),
    ):
        with pytest.raises(ShapeError, match=message):
            attention(*(torch.randn(shape) for shape in shapes))


def test_a_single_sequence_needs_no_batch_axis_as_in_pytorch() -> None:
    original, features = nn.MultiheadAttention(6, 3, batch_first=True).eval(), torch.randn(7, 6)
    attention = MultiHeadAttention.from_torch(original)
    torch.testing.assert_close(attention(features), original(features, features, features)[0])
    for mask in ("causal", torch.rand(7, 7) < 0.7):
        assert torch.equal(attention(features, mask=mask), attention(features[None], mask=mask)[0])
    # to a memory, and watched as a batch of one
    attention = MultiHeadAttention(6, 3, memory_width=5, value_memory_width=2, output=None, value_head_width=4)
    memory, value_memory, lengths = torch.randn(11, 5), torch.randn(11, 2), torch.tensor([9])
    with watch(attention) as maps:
        result = attention(features, memory, value_memory, lengths=lengths)
    assert maps[""].shape == (1, 3, 7, 11)
    assert result.shape == (7, 12)
    assert torch.equal(result, attention(features[None], memory[None], value_memory[None], lengths=lengths)[0])


def test_dropout_is_drawn_anew_in_training_and_off_in_eval() -> None:
    attention, features = MultiHeadAttention(6, 3, dropout=0.5), torch.randn(2, 5, 6)
    torch.manual_seed(3)
    first, second = attention(features), attention(features)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(attention(features), first)
    attention.eval()
    state = torch.get_rng_state()
    assert torch.equal(attention(features), attention(features))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("score", SCORES)
def test_it_is_saved_copied_and_made_double(score: str) -> None:
    arguments = {"score": score, "position": "relative_bias", "normalizer": "entmax15"}
    attention, features = MultiHeadAttention(6, 3, **arguments), torch.randn(2, 5, 6)
    expected = attention(features)
    second = MultiHeadAttention(6, 3, **arguments)
    assert not torch.equal(second(features), expected)
    second.load_state_dict(attention.state_dict())
    assert torch.equal(second(features), expected)
    assert torch.equal(copy.deepcopy(attention)(features), expected)
    torch.testing.assert_close(attention.double()(features.double()), expected.double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("score", SCORES)
def test_autocast(score: str) -> None:
    attention, features = MultiHeadAttention(6, 3, score=score, position="rotary"), torch.randn(2, 5, 6)
    expected = attention(features, mask="causal")
    with torch.autocast("cpu", torch.bfloat16):
        output = attention(features, mask="causal")
        cached = attention.recall(features, attention.remember(features), mask="causal")
    output.sum().backward()
    assert output.dtype == cached.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), expected, rtol=0.05, atol=0.05)
    torch.testing.assert_close(cached.float(), expected, rtol=0.05, atol=0.05)
    # a score of places looks at no key
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in attention.parameters())


COMPILED = [
    {},
    {"score": "additive", "dropout": 0.2},
    {"score": "general", "position": "rotary", "key_value_heads": 1},
    {"score": "gated", "normalizer": "entmax15", "position": "relative_bias"},
    {"score": "gaussian", "position": "alibi", "soft_cap": 4.0},
]


@pytest.mark.slow
# PyTorch's compiler itself imports what PyTorch has deprecated
@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("arguments", COMPILED, ids=str)
def test_it_compiles_to_one_graph(arguments: dict[str, Any]) -> None:
    attention, features, lengths = MultiHeadAttention(8, 2, **arguments), torch.randn(2, 5, 8), torch.tensor([5, 3])

    def gradients(call: Callable[..., Tensor]) -> list[Tensor]:
        torch.manual_seed(5)
        context = call(features, mask="causal", lengths=lengths)
        return [
            context.detach(),
            *torch.autograd.grad(context.square().sum(), list(attention.parameters()), materialize_grads=True),
        ]

    torch.compiler.reset()
    # what inductor makes of other graphs takes it a minute each, and is its own affair
    backend = "aot_eager" if arguments else "inductor"
    actual, expected = gradients(torch.compile(attention, fullgraph=True, backend=backend)), gradients(attention)
    assert all(tensor.isfinite().all() for tensor in actual)
    if attention.dropout:
        # a compiled graph draws its seed otherwise
        assert [tensor.shape for tensor in actual] == [tensor.shape for tensor in expected]
    else:
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_every_bias_and_mask_reaches_the_heads() -> None:
    attention, query, memory = MultiHeadAttention(6, 3), torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    cases: list[dict[str, Any]] = [{}, {"mask": torch.rand(2, 3, 5, 7) < 0.5}, {"bias": torch.randn(1, 3, 5, 7)}]
    cases += [{"lengths": torch.tensor([3, 2])}, {"mask": "causal", "query_start": 0}]
    results = [attention(query, memory, **arguments) for arguments in cases]
    assert all(not torch.allclose(first, second) for first, second in itertools.combinations(results, 2))


@pytest.mark.parametrize("axes", [(2, 5, 8), (5, 8)], ids=["batch", "single sequence"])
def test_the_map_of_the_weights_is_returned_too(axes: tuple[int, ...]) -> None:
    attention, features = MultiHeadAttention(8, 2), torch.randn(axes)
    with watch(attention) as captured:
        expected = attention(features, mask="causal")
    merged, weights = attention(features, mask="causal", return_map=True)
    assert torch.equal(merged, expected)
    assert weights.shape == (*(axes[:-2] or (1,)), 2, 5, 5)
    assert torch.equal(weights.dense(), captured[""].dense())


def cache_of(length: int) -> KeyValueCache:
    side = LoweredSide(torch.randn(2, 3, length, 5), torch.randn(2, 3, length), torch.randn(2, 3, 1, 5))
    return KeyValueCache(side, torch.randn(2, 3, length, 7))


def test_appending_lays_keys_and_values_behind_and_changes_nothing() -> None:
    first, second = cache_of(11), cache_of(2)
    combined = first.append(second.key, second.value)
    assert (first.length, second.length, combined.length) == (11, 2, 13)
    assert torch.equal(combined.key.features[:, :, :11], first.key.features)
    assert torch.equal(combined.key.features[:, :, 11:], second.key.features)
    assert torch.equal(combined.key.bias, torch.cat((first.key.bias, second.key.bias), 2))
    assert torch.equal(combined.value, torch.cat((first.value, second.value), 2))
    assert combined.key.center is first.key.center


def test_a_cache_without_keys_takes_the_origin_of_the_first() -> None:
    attention = MultiHeadAttention(4, 2, score=Gaussian())
    features = torch.randn(3, 5, 4) + 7
    cache = attention.remember(features, attention.remember(features[:, :0]))
    torch.testing.assert_close(attention.recall(features, cache), attention(features))


def test_selecting_takes_sequences_in_order() -> None:
    cache = cache_of(11)
    for rows in (torch.tensor([1, 1, 0]), torch.tensor([False, True])):
        chosen = cache.select(rows)
        assert torch.equal(chosen.value, cache.value[rows])
        for part, whole in zip(chosen.key, cache.key, strict=True):
            assert torch.equal(part, whole[rows])
    bare = KeyValueCache(LoweredSide(cache.key.features), cache.value).select(torch.tensor([1]))
    assert bare.key.bias is bare.key.center is None
    assert bare.length == 11


def test_lengths_in_a_cache_are_each_sequences_own() -> None:
    attention = MultiHeadAttention(4, 2, position="rotary").double()
    features, more = torch.randn(2, 6, 4).double(), torch.randn(2, 1, 4).double()
    lengths = torch.tensor([5, 3])
    written = features.clone()
    for index, length in enumerate(lengths):
        written[index, length] = more[index, 0]
    output = attention.recall(more, attention.remember(written), lengths=lengths + 1)
    for index, length in enumerate(lengths):
        single = attention(torch.cat((features[index : index + 1, :length], more[index : index + 1]), 1))
        torch.testing.assert_close(output[index], single[0, -1:])


def test_keys_are_remembered_exactly_where_lowering_would_round() -> None:
    attention = MultiHeadAttention(8, 2, score="additive", key_value_heads=1).bfloat16()
    features = torch.randn(3, 5, 8).bfloat16()
    cache = attention.remember(features)
    assert cache.key.features.dtype == torch.float32
    assert cache.value.dtype == torch.bfloat16
    # one key side for each head, and values to go with it
    assert cache.key.features.shape[1] == cache.value.shape[1] == 2
    assert torch.equal(attention.recall(features, cache), attention(features))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(attention.recall(features, attention.remember(features)), attention(features))
