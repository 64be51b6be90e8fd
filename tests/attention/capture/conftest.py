"""A causal language model of plain PyTorch, with the form of Hugging Face's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

WORDS, WIDTH, HEADS = 13, 12, 3


class CausalAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, features: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(features).chunk(3, -1)
        )
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.o_proj(context.transpose(1, 2).flatten(2))


class DecoderLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first_norm, self.attention, self.second_norm = nn.LayerNorm(WIDTH), CausalAttention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 17), nn.GELU(), nn.Linear(17, WIDTH))

    def forward(self, hidden_states: Tensor) -> Tensor:
        hidden_states = hidden_states + self.attention(self.first_norm(hidden_states))
        return hidden_states + self.mlp(self.second_norm(hidden_states))


class CausalModel(nn.Module):
    """`config` and `get_output_embeddings` have the names of Hugging Face's."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(num_attention_heads=HEADS)
        self.embedding, self.norm, self.head = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(3))

    def forward(self, tokens: Tensor) -> Any:
        features = self.embedding(tokens)
        for layer in self.layers:
            features = layer(features)
        return SimpleNamespace(logits=self.head(self.norm(features)))

    def get_output_embeddings(self) -> nn.Module:
        return self.head


@pytest.fixture
def causal_model() -> CausalModel:
    torch.manual_seed(0)
    model = CausalModel().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model
