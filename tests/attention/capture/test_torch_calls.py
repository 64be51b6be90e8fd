from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.attend import attend
from attent.attention.capture.patching import Ears
from attent.attention.capture.torch_calls import Heard, first_argument, running


@pytest.fixture
def heard() -> Iterator[list[Heard]]:
    """What is heard during a test."""
    found: list[Heard] = []
    ears = Ears(found.append)
    ears.place([])
    yield found
    ears.remove()


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, features: Tensor) -> list[nn.Module]:
        return self.inner(features)


class Inner(nn.Module):
    def forward(self, features: Tensor) -> list[nn.Module]:
        assert first_argument(sys._getframe()) is self
        return (lambda: list(dict.fromkeys(running(sys._getframe()))))()


def test_the_modules_that_are_running_the_innermost_first() -> None:
    model = Outer(Inner())
    assert model(torch.zeros(1)) == [model.inner, model]
    assert first_argument(sys._getframe()) is None


def test_the_products_of_others_are_none_of_ours(heard: list[Heard]) -> None:
    features = torch.randn(2, 3, 3)
    torch.baddbmm(features, torch.bmm(features, features), features)
    assert not heard


def test_our_own_kernels_are_left_to_their_callers(heard: list[Heard]) -> None:
    features = torch.randn(2, 3, 5, 4)
    attend(features, features, features, implementation="sdpa")
    assert not heard
    F.scaled_dot_product_attention(features, features, features)
    assert len(heard) == 1


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("more", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 5, "vdim": 5}])
@pytest.mark.parametrize("masked", [True, False])
def test_multihead_attention_that_returns_its_weights(heard: list[Heard], bias: bool, more: dict[str, int], masked: bool) -> None:
    attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True, bias=bias, **more)
    query, memory = torch.randn(3, 5, 8), torch.randn(3, 4, more.get("kdim", 8))
    masks: dict[str, Tensor] = {}
    if masked:
        padding = torch.zeros(3, 4).bool()
        padding[0, 2:], padding[1] = True, True
        masks = {"key_padding_mask": padding, "attn_mask": torch.rand(6, 5, 4) > 0.8}
    attention(query, memory, memory, **masks)
    attention.dropout = 0.0
    _, expected = attention(query, memory, memory, average_attn_weights=False, **masks)
    # a query that may see nothing is NaN here, as it is there
    torch.testing.assert_close(heard[0].map().dense(), expected.detach(), equal_nan=True)
    assert bool(expected.isnan().any()) == (masked and not {"add_bias_kv", "add_zero_attn"} & more.keys())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors(heard: list[Heard]) -> None:
    sequences = [torch.randn(3, 2, 8), torch.randn(5, 2, 8)]
    features = torch.nested.nested_tensor(sequences, layout=torch.jagged).transpose(1, 2)  # (B, H, T_b, D)
    F.scaled_dot_product_attention(features, features, features)
    found = heard[0].map().dense()
    for which, sequence in enumerate(sequences):
        length, sides = len(sequence), sequence.transpose(0, 1)[None]
        torch.testing.assert_close(found[which, :, :length, :length], (sides @ sides.mT / 8**0.5).softmax(-1)[0])
        assert not found[which, :, length:].any()


def test_query_heads_packed_as_queries_are_unpacked(heard: list[Heard]) -> None:
    """As transformers hands a decoder's step over to PyTorch where heads are grouped."""

    def sdpa_attention_forward(module: nn.Module, query: Tensor, key: Tensor, mask: Tensor) -> None:
        q_length = query.shape[2]
        assert q_length == 1
        query, mask = query.reshape(2, 3, 2, 4), mask.reshape(2, 3, 2, 5)
        F.scaled_dot_product_attention(query, key, key, attn_mask=mask)

    query, key, mask = torch.randn(2, 6, 1, 4), torch.randn(2, 3, 5, 4), torch.randn(2, 6, 1, 5)
    sdpa_attention_forward(nn.Module(), query, key, mask)
    found = heard[0].map()
    assert found.shape == (2, 6, 1, 5)
    torch.testing.assert_close(found.dense(), (query @ key.repeat_interleave(2, 1).mT / 2 + mask).softmax(-1))
