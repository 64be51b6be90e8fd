"""`attent.integrations.torch.MultiheadAttention` beside PyTorch's module of the same parameters."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention.capture.watch import watch
from attent.attention.maps.lazy_tensor import LazyTensor
from attent.errors import ArgumentError, ShapeError
from attent.integrations.torch import MultiheadAttention

BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 3, 7, 5, 12
# every query sees the first key: without any, PyTorch's module gives NaN
HIDDEN_OF_HEADS = (torch.arange(BATCH * HEADS * QUERIES * KEYS).view(BATCH * HEADS, QUERIES, KEYS) % 7 > 3) & (
    torch.arange(KEYS) > 0
)
HIDDEN = HIDDEN_OF_HEADS[0]
PADDING = torch.tensor([[False] * 5, [False, False, True, True, True]])
CAUSAL = torch.ones(QUERIES, KEYS).triu(1).bool()
TERM = torch.linspace(-2, 2, QUERIES * KEYS).view(QUERIES, KEYS)
TERM_OF_HEADS = torch.linspace(-2, 2, BATCH * HEADS * QUERIES * KEYS).view(BATCH * HEADS, QUERIES, KEYS)


def pair(**options: Any) -> tuple[MultiheadAttention, nn.MultiheadAttention]:
    """Our module and PyTorch's, with the same parameters, none of them zero."""
    torch.manual_seed(3)
    attention = nn.MultiheadAttention(WIDTH, HEADS, **options)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.copy_(torch.randn_like(parameter) / WIDTH**0.5)
    layer = MultiheadAttention(WIDTH, HEADS, **options)
    assert list(layer.state_dict()) == list(attention.state_dict())
    layer.load_state_dict(attention.state_dict())
    return layer, attention


def features(module: nn.MultiheadAttention, *, is_batched: bool = True) -> list[Tensor]:
    tensors: list[Tensor] = []
    for length, width in ((QUERIES, WIDTH), (KEYS, module.kdim), (KEYS, module.vdim)):
        shape = (BATCH, length, width) if module.batch_first else (length, BATCH, width)
        tensor = torch.randn(shape if is_batched else (length, width))
        tensors.append(tensor.to(module.out_proj.weight).requires_grad_())
    return tensors


def results(module: nn.MultiheadAttention, tensors: list[Tensor], **options: Any) -> list[Tensor]:
    """The output, the weights, and the gradients of inputs and parameters that pass through both."""
    output, weights = module(*tensors, **options)
    loss = (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum()
    if weights is not None:
        loss = loss + (weights * torch.linspace(-1, 2, weights.numel()).view(weights.shape)).sum()
    leaves = [*dict.fromkeys(tensors), *module.parameters()]
    return [output, *([] if weights is None else [weights]), *torch.autograd.grad(loss, leaves)]


def assert_equal(actual: list[Tensor], expected: list[Tensor]) -> None:
    assert [tensor.shape for tensor in actual] == [tensor.shape for tensor in expected]
    for item, right in zip(actual, expected, strict=True):
        assert item.dtype == right.dtype
        torch.testing.assert_close(item + 0, right, atol=2e-5, rtol=1e-4)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False, "batch_first": True},
    "widths": {"kdim": 7, "vdim": 11},
    "added keys": {"add_bias_kv": True, "batch_first": True},
    "zero key": {"add_zero_attn": True},
    "all": {"bias": False, "add_bias_kv": True, "add_zero_attn": True, "kdim": 7, "vdim": 11, "batch_first": True},
    "float64": {"dtype": torch.float64},
}
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "boolean": {"attn_mask": HIDDEN},
    "of heads": {"attn_mask": HIDDEN_OF_HEADS},
    "padding": {"key_padding_mask": PADDING},
    "gaps": {"key_padding_mask": PADDING.flip(1)},
    "boolean and padding": {"attn_mask": HIDDEN, "key_padding_mask": PADDING},
    "term": {"attn_mask": TERM},
    "term of heads": {"attn_mask": TERM_OF_HEADS},
    "term of keys": {"key_padding_mask": PADDING * -1.5},
    "two terms": {"attn_mask": TERM, "key_padding_mask": PADDING * -1.5},
    "infinite term": {"attn_mask": torch.zeros(QUERIES, KEYS).masked_fill(HIDDEN, -torch.inf)},
    "causal and padding": {"attn_mask": CAUSAL, "is_causal": True, "key_padding_mask": PADDING},
    "causal": {"attn_mask": CAUSAL, "is_causal": True},
}


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    ("options", "mask"),
    # with added keys PyTorch hides them from all but the last queries of a causal call without weights
    [*((name, "none") for name in OPTIONS), *((("plain", "all")[place % 2], name) for place, name in enumerate(MASKS))],
)
def test_results_and_gradients_are_those_of_pytorch(options: str, mask: str, need_weights: bool) -> None:
    layer, reference = pair(**OPTIONS[options])
    tensors, arguments = features(layer), {**MASKS[mask], "need_weights": need_weights, "average_attn_weights": False}
    assert_equal(results(layer, tensors, **arguments), results(reference, tensors, **arguments))


@pytest.mark.parametrize(("options", "is_averaged"), [("plain", True), ("batch first", False), ("all", True)])
def test_a_sequence_alone(options: str, is_averaged: bool) -> None:
    layer, reference = pair(**OPTIONS[options])
    tensors = features(layer, is_batched=False)
    masks = {"attn_mask": HIDDEN_OF_HEADS[:HEADS], "key_padding_mask": PADDING[1], "average_attn_weights": is_averaged}
    assert_equal(results(layer, tensors, **masks), results(reference, tensors, **masks))


def test_self_attention() -> None:
    layer, reference = pair()
    tensors = features(layer)[:1] * 3
    assert_equal(results(layer, tensors), results(reference, tensors))


def test_weights_are_computed_when_they_are_read() -> None:
    layer, reference = pair(batch_first=True)
    tensors = features(layer)
    for is_averaged, shape in ((True, (BATCH, QUERIES, KEYS)), (False, (BATCH, HEADS, QUERIES, KEYS))):
        weights = layer(*tensors, average_attn_weights=is_averaged)[1]
        expected = reference(*tensors, average_attn_weights=is_averaged)[1]
        assert type(weights) is LazyTensor and weights._dense is None
        assert weights.shape == shape and len(weights) == BATCH and weights.detach().shape == shape
        torch.testing.assert_close(weights[..., 2, :], expected[..., 2, :])
        torch.testing.assert_close(weights[1, ..., 2:4, 1:], expected[1, ..., 2:4, 1:])
        assert weights._dense is None
        torch.testing.assert_close(weights[0], expected[0])
        torch.testing.assert_close(weights.detach().mean(-2), expected.mean(-2))
    single = layer(*(tensor[1] for tensor in tensors))[1]
    torch.testing.assert_close(single[3], reference(*(tensor[1] for tensor in tensors))[1][3])
    assert single._dense is None


@pytest.mark.parametrize("need_weights", [True, False])
def test_queries_that_see_nothing_get_zeros(need_weights: bool) -> None:
    layer, reference = pair(batch_first=True)
    tensors = features(layer)
    masks = {"key_padding_mask": torch.tensor([[True] * KEYS, [False] * KEYS]), "need_weights": need_weights}
    output, *rest = results(layer, tensors, **masks)
    right = reference(*tensors, **masks)[0]
    torch.testing.assert_close(output[0], layer.out_proj.bias.expand(QUERIES, -1))
    torch.testing.assert_close(output[1], right[1], atol=1e-5, rtol=1e-5)
    assert not need_weights or (right[0].isnan().all() and not rest[0][0].any())
    assert all((tensor + 0).isfinite().all() for tensor in rest)


def test_dropout_is_that_of_training() -> None:
    layer, reference = pair(dropout=0.5, batch_first=True)
    tensors = features(layer)
    torch.manual_seed(1)
    first, weights = layer(*tensors)
    torch.manual_seed(1)
    repeated, second = layer(*tensors)[0], layer(*tensors)[0]
    assert torch.equal(first, repeated) and not torch.equal(first, second)
    torch.testing.assert_close(weights + 0, reference.eval()(*tensors)[1])
    assert_equal(results(layer.eval(), tensors), results(reference, tensors))


def test_it_is_watched_copied_and_compiled() -> None:
    layer, reference = pair(batch_first=True)
    tensors = features(layer)
    expected, right = reference(*tensors, average_attn_weights=False)
    with watch(layer) as maps:
        output = layer(*tensors)[0]
    torch.testing.assert_close(next(iter(maps.values())).dense(), right)
    assert len(maps) == 1
    for module in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.compile(layer, backend="eager")):
        torch.testing.assert_close(module(*tensors)[0], output, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    rows = torch.func.vmap(lambda query: layer(query[None], tensors[1][:1], tensors[2][:1])[0])(tensors[0])
    torch.testing.assert_close(rows[0], output[:1], atol=1e-5, rtol=1e-5)


def test_wrong_arguments_are_named() -> None:
    actual, _ = pair()
    query, key, value = features(actual)
    for inputs, options, error, message in (
        ((query, key, value), {"is_causal": True}, ArgumentError, "is_causal is a promise"),
        ((query, key, value), {"attn_mask": HIDDEN.mT}, ShapeError, r"\(7, 5\) or \(6, 7, 5\), got \(5, 7\)"),
        ((query, key[0], value), {}, ShapeError, "all have two axes, or three"),
        ((query, key[..., :7], value), {}, ShapeError, "12, 12, 12 wide"),
    ):
        with pytest.raises(error, match=message):
            actual(*inputs, **options)
