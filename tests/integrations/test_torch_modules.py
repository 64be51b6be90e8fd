"""PyTorch's modules, and models of Hugging Face, while `scaled_dot_product_attention` runs our kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention.capture.watch import watch
from attent.ops.dense_attention import is_compiled

pytestmark = pytest.mark.skipif(not is_compiled(), reason="the compiled library is not there")


def multi_head(training: bool) -> tuple[nn.MultiheadAttention, Tensor]:
    torch.manual_seed(5)
    return nn.MultiheadAttention(16, 4, batch_first=True).train(training), torch.randn(2, 7, 16)


@pytest.mark.parametrize(
    ("training", "need_weights", "reaches"),
    [(True, False, True), (True, True, False), (False, False, True), (False, True, False)],
)
def test_multihead_attention(active: Any, calls: Any, training: bool, need_weights: bool, reaches: bool) -> None:
    layer, features = multi_head(training)
    expected = layer(features, features, features, need_weights=need_weights)[0]
    with active():
        output = layer(features, features, features, need_weights=need_weights)[0]
    assert calls.count == reaches
    torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-5)
    assert reaches or torch.equal(output, expected)


@pytest.mark.parametrize("has_fast_path", [True, False])
def test_the_fast_path_of_a_transformer_is_pytorchs_own(active: Any, calls: Any, has_fast_path: bool) -> None:
    torch.manual_seed(5)
    layer, features = nn.TransformerEncoderLayer(16, 4, batch_first=True).eval(), torch.randn(2, 7, 16)
    torch.backends.mha.set_fastpath_enabled(has_fast_path)
    try:
        with torch.no_grad(), active():
            output = layer(features)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert calls.count == (not has_fast_path)
    with torch.no_grad():
        torch.testing.assert_close(output, layer(features), atol=1e-6, rtol=1e-5)


def test_a_watched_model_runs_our_kernel(active: Any, calls: Any) -> None:
    layer, features = multi_head(True)
    with active():
        expected = layer(features, features, features, need_weights=False)[0]
        with watch(layer) as captured:
            output = layer(features, features, features, need_weights=False)[0]
    assert calls.count == 2
    assert torch.equal(output, expected)
    weights = layer(features, features, features, average_attn_weights=False)[1]
    torch.testing.assert_close(next(iter(captured.values())).dense(), weights)
