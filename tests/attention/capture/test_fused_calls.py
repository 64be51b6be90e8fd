from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import StaleMapError

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Converting mask without torch.bool")


def seen(model: nn.Module, *inputs: Tensor, **masks: Tensor | None) -> tuple[dict[str, AttentionMap], Tensor]:
    """The maps of a model on its fused path, whose output must be as ever, and that output."""
    with torch.no_grad():
        expected = model(*inputs, **masks)
        with watch(model) as maps:
            found = model(*inputs, **masks)
    found, expected = (each[0] if isinstance(each, tuple) else each for each in (found, expected))
    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))
    return dict(maps), found


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
    every = {"src_mask": torch.ones(5, 5).triu(1).bool(), "src_key_padding_mask": padding}
    masks = every if masked == "both" else {masked: every[masked]} if masked else {}
    assert "_transformer_encoder_layer_fwd" in operators(model, features, **masks)
    maps, _ = seen(model, features, **masks)
    assert list(maps) == ["self_attn"]
    torch.testing.assert_close(maps["self_attn"].dense(), slow(model, features, **masks)["self_attn"].dense())


def operators(model: nn.Module, *inputs: Tensor, **masks: Tensor | None) -> str:
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile, watch(model):
        model(*inputs, **masks)
    return " ".join(event.key for event in profile.key_averages())


def test_an_encoder_that_leaves_padding_out() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 13, batch_first=True), 2).eval()
    features, padding = torch.randn(3, 7, 8), torch.zeros(3, 7).bool()
    padding[0, 5:], padding[1, 3:], padding[2, 6:] = True, True, True
    maps, _ = seen(model, features, src_key_padding_mask=padding)
    expected = slow(model, features, src_key_padding_mask=padding)
    assert list(maps) == list(expected) == ["layers.0.self_attn", "layers.1.self_attn"]
    for path, weights in maps.items():
        # rows of padding are not computed there
        real = (~padding)[:, None, :, None]
        torch.testing.assert_close(weights.dense(), expected[path].dense() * real)


def test_what_pytorch_takes_a_float_mask_for() -> None:
    """On this path PyTorch hides every pair whose term is not zero; the map shows that."""
    model = nn.TransformerEncoderLayer(8, 2, 13, batch_first=True).eval()
    mask = torch.zeros(5, 5)
    mask[1, 2], mask[4] = 0.7, -torch.inf
    maps, output = seen(model, torch.randn(3, 5, 8), src_mask=mask)
    weights = maps["self_attn"].dense()
    assert not weights[:, :, 1, 2].any()
    assert weights[:, :, :4].isfinite().all()
    assert weights[:, :, 4].isnan().all()
    assert output[:, 4].isnan().all()
    assert output[:, :4].isfinite().all()


@pytest.mark.parametrize("masked", ["", "attn_mask", "key_padding_mask", "both"])
def test_multihead_attention(masked: str) -> None:
    model = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    features, padding = torch.randn(3, 5, 8), torch.zeros(3, 5).bool()
    padding[1, 3:], padding[2] = True, True
    every = {"attn_mask": torch.ones(5, 5).triu(1).bool(), "key_padding_mask": padding}
    masks = every if masked == "both" else {masked: every[masked]} if masked else {}
    maps, _ = seen(model, features, features, features, **masks)
    _, expected = model(features, features, features, average_attn_weights=False, **masks)
    torch.testing.assert_close(maps[""].dense(), expected.detach(), equal_nan=True)
    assert "_native_multi_head_attention" in operators(model, features, features, features, **masks)


def test_parameters_that_changed_are_noticed() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 13, batch_first=True).eval()
    maps, _ = seen(model, torch.randn(3, 5, 8))
    nn.init.ones_(model.self_attn.in_proj_weight)
    with pytest.raises(StaleMapError, match="changed in place after the call"):
        maps["self_attn"].dense()
