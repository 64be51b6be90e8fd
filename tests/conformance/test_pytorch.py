"""PyTorch's own attention as an oracle, over drawn shapes, masks and head layouts."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention import attend
from attent.attention.multihead import MultiHeadAttention
from attent.attention.scores import ScaledDot

IMPLEMENTATIONS = ("auto", "reference", "tiled")
WHOLE = st.integers(1, 7)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def coin(seed: int, *shape: int) -> Tensor:
    """Booleans, at least one of each row true: PyTorch's softmax over nothing is NaN."""
    table = drawn(seed, *shape) < 0.3
    table[..., 0] |= ~table.any(-1)
    return table


@settings(max_examples=60)
@given(
    sizes=st.tuples(WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, st.integers(1, 3)),
    seed=st.integers(0, 99),
    mask=st.sampled_from(["none", "causal", "boolean", "float"]),
    broadcast=st.booleans(),
    scale=st.sampled_from([None, 0.3]),
    implementation=st.sampled_from(IMPLEMENTATIONS),
)
def test_scaled_dot_product_attention(
    sizes: tuple[int, ...], seed: int, mask: str, broadcast: bool, scale: float | None, implementation: str
) -> None:
    batch, groups, queries, keys, width, value_width, share = sizes
    query, key, value = (
        drawn(seed + index, batch, *shape)
        for index, shape in enumerate(
            ((groups * share, queries, width), (groups, keys, width), (groups, keys, value_width))
        )
    )
    shape = (queries, keys) if broadcast else (batch, groups * share, queries, keys)
    reference_options: dict[str, Any] = {"scale": scale, "enable_gqa": True}
    options: dict[str, Any] = {"score": ScaledDot(scale), "implementation": implementation}
    if mask == "causal":
        reference_options["is_causal"] = True
        # PyTorch counts queries from the first key
        options |= {"mask": "causal", "query_start": 0}
    elif mask == "boolean":
        reference_options["attn_mask"] = options["mask"] = coin(seed, *shape)
    elif mask == "float":
        reference_options["attn_mask"] = options["bias"] = drawn(seed, *shape).masked_fill(
            ~coin(seed, *shape), -torch.inf
        )
    context, weights = attend(query, key, value, **options, return_map=True)
    torch.testing.assert_close(context, F.scaled_dot_product_attention(query, key, value, **reference_options))
    torch.testing.assert_close(weights.dense() @ value.repeat_interleave(share, 1), context)


@settings(max_examples=40)
@given(
    sizes=st.tuples(WHOLE, st.integers(1, 3), st.integers(1, 3), WHOLE, WHOLE, WHOLE, WHOLE),
    seed=st.integers(0, 99),
    padded=st.booleans(),
    hidden=st.sampled_from(["none", "boolean", "float", "per_head"]),
)
def test_multihead_attention(sizes: tuple[int, ...], seed: int, padded: bool, hidden: str) -> None:
    batch, heads, head_width, queries, keys, key_width, value_width = sizes
    width = heads * head_width
    torch.manual_seed(seed)
    reference = nn.MultiheadAttention(width, heads, kdim=key_width, vdim=value_width, batch_first=True).double().eval()
    converted = MultiHeadAttention.from_torch(reference)
    query, key, value = (
        drawn(1, batch, queries, width),
        drawn(2, batch, keys, key_width),
        drawn(3, batch, keys, value_width),
    )
    arguments: dict[str, Any] = {}
    options: dict[str, Any] = {}
    if padded:
        lengths = torch.arange(batch) % keys + 1
        # in PyTorch's module True means "may not"
        arguments["key_padding_mask"] = torch.arange(keys) >= lengths[:, None]
        options["lengths"] = lengths
    if hidden in ("boolean", "per_head"):
        table = coin(seed, *((queries, keys) if hidden == "boolean" else (batch, heads, queries, keys)))
        table[..., 0] = True
        arguments["attn_mask"] = ~(table if hidden == "boolean" else table.flatten(0, 1))
        options["mask"] = table
    elif hidden == "float" and not padded:
        arguments["attn_mask"] = options["bias"] = drawn(seed, queries, keys)
    expected, _ = reference(query, key, value, need_weights=False, **arguments)
    torch.testing.assert_close(converted(query, key, value_memory=value, **options), expected)
