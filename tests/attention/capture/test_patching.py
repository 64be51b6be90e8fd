from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.attend import attend
from attent.attention.capture.changed_calls import plain_encoder_layer, plain_multi_head
from attent.attention.capture.interventions import first_argument, running_modules
from attent.attention.capture.patching import TARGETS, CapturedCall, Patcher
from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import StaleMapError

pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors", "ignore:Converting mask without torch.bool"
)


@pytest.fixture
def captured() -> Iterator[list[CapturedCall]]:
    """What is heard during a test."""
    calls: list[CapturedCall] = []
    patcher = Patcher(calls.append)
    patcher.patch([])
    yield calls
    patcher.restore()


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, features: Tensor) -> list[nn.Module]:
        return self.inner(features)


class Inner(nn.Module):
    def forward(self, features: Tensor) -> list[nn.Module]:
        assert first_argument(sys._getframe()) is self
        return (lambda: list(dict.fromkeys(running_modules(sys._getframe()))))()


def test_the_modules_that_are_running_the_innermost_first() -> None:
    model = Outer(Inner())
    assert model(torch.zeros(1)) == [model.inner, model]
    assert first_argument(sys._getframe()) is None


def test_our_own_kernels_other_products_and_calls_that_fail_are_not_heard(captured: list[CapturedCall]) -> None:
    features = torch.randn(2, 3, 5, 4)
    attend(features, features, features, implementation="sdpa")
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(features, features[..., :3], features[..., :3])
    torch.baddbmm(features[0, :, :4], torch.bmm(features[0, :, :4], features[0, :, :4]), features[0, :, :4])
    assert not captured
    F.scaled_dot_product_attention(features, features, features)
    assert len(captured) == 1


@pytest.mark.parametrize("more", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 5, "vdim": 5}])
@pytest.mark.parametrize(("bias", "masked"), [(True, True), (False, False), (False, True)])
def test_multihead_attention_that_returns_its_weights(
    captured: list[CapturedCall], bias: bool, more: dict[str, int], masked: bool
) -> None:
    attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True, bias=bias, **more)
    query, memory = torch.randn(3, 5, 8), torch.randn(3, 4, more.get("kdim", 8))
    padding = torch.zeros(3, 4).bool()
    padding[0, 2:], padding[1] = True, True
    masks = {"key_padding_mask": padding, "attn_mask": torch.rand(6, 5, 4) > 0.8} if masked else {}
    attention(query, memory, memory, **masks)
    attention.dropout = 0.0
    _, expected = attention(query, memory, memory, average_attn_weights=False, **masks)
    # a query that may see nothing is NaN here, as it is there
    torch.testing.assert_close(captured[0].make_map().dense(), expected.detach(), equal_nan=True)
    assert bool(expected.isnan().any()) == (masked and not {"add_bias_kv", "add_zero_attn"} & more.keys())


def test_nested_tensors(captured: list[CapturedCall]) -> None:
    sequences = [torch.randn(3, 2, 8), torch.randn(5, 2, 8)]
    features = torch.nested.nested_tensor(sequences, layout=torch.jagged).transpose(1, 2)  # (B, H, T_b, D)
    F.scaled_dot_product_attention(features, features, features)
    dense_weights = captured[0].make_map().dense()
    for index, sequence in enumerate(sequences):
        length, sides = len(sequence), sequence.transpose(0, 1)[None]
        torch.testing.assert_close(
            dense_weights[index, :, :length, :length], (sides @ sides.mT / 8**0.5).softmax(-1)[0]
        )
        assert not dense_weights[index, :, length:].any()


def test_query_heads_packed_as_queries_are_unpacked(captured: list[CapturedCall]) -> None:
    def sdpa_attention_forward(module: nn.Module, query: Tensor, key: Tensor, mask: Tensor) -> None:
        q_length = query.shape[2]
        assert q_length == 1
        query, mask = query.reshape(2, 3, 2, 4), mask.reshape(2, 3, 2, 5)
        F.scaled_dot_product_attention(query, key, key, attn_mask=mask)

    query, key, mask = torch.randn(2, 6, 1, 4), torch.randn(2, 3, 5, 4), torch.randn(2, 6, 1, 5)
    sdpa_attention_forward(nn.Module(), query, key, mask)
    result = captured[0].make_map()
    assert result.shape == (2, 6, 1, 5)
    torch.testing.assert_close(result.dense(), (query @ key.repeat_interleave(2, 1).mT / 2 + mask).softmax(-1))


def run_watched(model: nn.Module, *inputs: Tensor, **masks: Tensor | None) -> tuple[dict[str, AttentionMap], Tensor]:
    """The maps of a model on its fused path, whose output must be as ever, and that output."""
    with torch.no_grad():
        expected = model(*inputs, **masks)
        with watch(model) as maps:
            actual = model(*inputs, **masks)
    actual, expected = (item[0] if isinstance(item, tuple) else item for item in (actual, expected))
    assert torch.equal(actual.nan_to_num(7.0), expected.nan_to_num(7.0))
    return dict(maps), actual


def slow(model: nn.Module, *inputs: Tensor, **masks: Tensor | None) -> dict[str, AttentionMap]:
    """The maps of the same model on the path that gradients take."""
    with watch(model) as maps:
        model(*inputs, **masks)
    return dict(maps)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("masked", ["", "src_mask", "src_key_padding_mask", "both"])
def test_an_encoder_layer(norm_first: bool, masked: str) -> None:
    model = nn.TransformerEncoderLayer(8, 2, 13, batch_first=True, norm_first=norm_first).eval()
    features, padding = torch.randn(3, 5, 8), torch.zeros(3, 5).bool()
    padding[1, 3:] = True
    full = {"src_mask": torch.ones(5, 5).triu(1).bool(), "src_key_padding_mask": padding}
    masks = full if masked == "both" else {masked: full[masked]} if masked else {}
    assert "_transformer_encoder_layer_fwd" in operators(model, features, **masks)
    maps, _ = run_watched(model, features, **masks)
    assert list(maps) == ["self_attn"]
    torch.testing.assert_close(maps["self_attn"].dense(), slow(model, features, **masks)["self_attn"].dense())


def operators(model: nn.Module, *inputs: Tensor, **masks: Tensor | None) -> str:
    with (
        torch.no_grad(),
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile,
        watch(model),
    ):
        model(*inputs, **masks)
    return " ".join(event.key for event in profile.key_averages())


def test_an_encoder_that_leaves_padding_out() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 13, batch_first=True), 2).eval()
    features, padding = torch.randn(3, 7, 8), torch.zeros(3, 7).bool()
    padding[0, 5:], padding[1, 3:], padding[2, 6:] = True, True, True
    maps, _ = run_watched(model, features, src_key_padding_mask=padding)
    expected = slow(model, features, src_key_padding_mask=padding)
    assert list(maps) == list(expected) == ["layers.0.self_attn", "layers.1.self_attn"]
    for path, weights in maps.items():
        # rows of padding are not computed there
        real = (~padding)[:, None, :, None]
        torch.testing.assert_close(weights.dense(), expected[path].dense() * real)


def test_what_pytorch_takes_a_float_mask_for_and_parameters_that_changed() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 13, batch_first=True).eval()
    mask = torch.zeros(5, 5)
    mask[1, 2], mask[4] = 0.7, -torch.inf
    maps, output = run_watched(model, torch.randn(3, 5, 8), src_mask=mask)
    weights = maps["self_attn"].dense()
    assert not weights[:, :, 1, 2].any()
    assert weights[:, :, :4].isfinite().all()
    assert weights[:, :, 4].isnan().all()
    assert output[:, 4].isnan().all()
    assert output[:, :4].isfinite().all()
    maps, _ = run_watched(model, torch.randn(3, 5, 8))
    nn.init.ones_(model.self_attn.in_proj_weight)
    with pytest.raises(StaleMapError, match="changed in place after the call"):
        maps["self_attn"].dense()


@pytest.mark.parametrize("masked", ["", "attn_mask", "key_padding_mask", "both"])
def test_multihead_attention(masked: str) -> None:
    model = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    features, padding = torch.randn(3, 5, 8), torch.zeros(3, 5).bool()
    padding[1, 3:], padding[2] = True, True
    full = {"attn_mask": torch.ones(5, 5).triu(1).bool(), "key_padding_mask": padding}
    masks = full if masked == "both" else {masked: full[masked]} if masked else {}
    maps, _ = run_watched(model, features, features, features, **masks)
    _, expected = model(features, features, features, average_attn_weights=False, **masks)
    torch.testing.assert_close(maps[""].dense(), expected.detach(), equal_nan=True)
    assert "_native_multi_head_attention" in operators(model, features, features, features, **masks)


def test_nothing_is_left_behind_and_what_somebody_else_put_there_since_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def current() -> list[Any]:
        return [getattr(target.owner, target.name) for target in TARGETS]

    before, patcher = current(), Patcher(lambda call: None)
    patcher.patch([])
    assert all(now is not original for now, original in zip(current(), before, strict=True))
    patcher.patch([])
    patcher.restore()
    patcher.restore()
    assert all(now is original for now, original in zip(current(), before, strict=True))
    monkeypatch.setattr(torch, "bmm", torch.bmm)
    patcher.patch([])
    torch.bmm = second = lambda *tensors: tensors
    patcher.restore()
    assert torch.bmm is second


def test_a_door_imported_by_name_is_listened_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    original = F.scaled_dot_product_attention
    file = ModuleType("a_file_of_models")
    vars(file).update(sdpa=original)
    monkeypatch.setitem(sys.modules, "a_file_of_models", file)
    kind = type("Model", (nn.Module,), {"__module__": "a_file_of_models"})
    calls: list[CapturedCall] = []
    patcher = Patcher(calls.append)
    patcher.patch([kind()])
    assert file.sdpa is F.scaled_dot_product_attention is not original
    query = torch.randn(2, 3, 4)
    assert torch.equal(file.sdpa(query, query, query), original(query, query, query))
    assert len(calls) == 1
    patcher.restore()
    assert file.sdpa is original


def test_contexts_can_be_changed_wherever_attention_is_captured() -> None:
    hidden = [target.plain for target in TARGETS if target.change is None and target.name != "cat"]
    assert hidden == [plain_encoder_layer, plain_multi_head]
