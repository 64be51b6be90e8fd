from __future__ import annotations

import pytest
from torch import nn

from attent.attention.multihead import MultiHeadAttention
from attent.layers.feed_forward import FeedForward
from attent.layers.residual import Norm
from attent.models.rnn import RNN
from attent.models.settings import EncoderSettings, RnnSettings
from attent.models.transformer_layers import EncoderLayer
from attent.views.describe import describe, equation


def test_the_total_is_every_parameter_once(translator) -> None:
    recurrent = RNN(RnnSettings(width=8, embedding_width=5, decoder_layers=2), 13, 11)
    assert "weight_hh_l0  24 × 8" in describe(recurrent)
    for model in (translator.model, recurrent):
        total = sum(parameter.numel() for parameter in model.parameters())
        assert f"{total:,} parameters in all" in describe(model)
    text = describe(translator.model)
    # layers built alike are drawn once
    assert text.count("layers 0 to 1, each  EncoderLayer") == 1
    assert text.count("cross_attention  MultiHeadAttention, 3 heads of width 4") == 1
    # a parameter that serves twice is counted once
    assert next(line for line in text.splitlines() if "to_logits" in line).endswith("shared")


def test_attention_shows_its_parts() -> None:
    attention = MultiHeadAttention(8, 2, score="additive", normalizer="entmax15", position="alibi")
    text = describe(nn.ModuleDict({"attention": attention}), "mine")
    assert text.startswith("mine\n")
    assert "score(q, k) = vᵀ tanh(W₁q + W₂k + b)" in text
    assert "normalizer  Entmax15" in text
    assert "position  Alibi" in text
    assert "W_Q  Linear 8 → 8   72" in text
    assert "query_weight  2 × 4 × 4" in text


def test_the_tree_is_drawn_in_lines() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.PReLU()))
    assert describe(model, "small").splitlines() == [
        "small",
        "├── 0  Linear 2 → 3   9",
        "└── 1  Sequential   1",
        "    └── 0  PReLU   1",
        "        └── weight  1",
        "10 parameters in all, 0.0 MiB",
    ]


@pytest.mark.parametrize(
    ("norm", "expected"),
    [("post", "LayerNorm(X + MultiHead(X, X, X))"), ("pre", "N = LayerNorm(X);  Z = X + MultiHead(N, N, N)")],
)
def test_the_equation_of_a_layer_is_that_of_its_norm(norm: Norm, expected: str) -> None:
    layer = EncoderLayer(EncoderSettings(width=8, feed_forward=8, heads=2, norm=norm))
    assert expected in equation(layer)
    assert "post" not in equation(layer)
    assert equation(FeedForward(2, 3)) == "FFN(x) = max(0, x W₁ + b₁) W₂ + b₂"
    assert equation(nn.LayerNorm(3)) == ""
