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
        drawn(seed + place, batch, *shape)
        for place, shape in enumerate(
            ((groups * share, queries, width), (groups, keys, width), (groups, keys, value_width))
        )
    )
    shape = (queries, keys) if broadcast else (batch, groups * share, queries, keys)
    theirs: dict[str, Any] = {"scale": scale, "enable_gqa": True}
    ours: dict[str, Any] = {"score": ScaledDot(scale), "implementation": implementation}
    if mask == "causal":
        theirs["is_causal"] = True
        # PyTorch counts queries from the first key
        ours |= {"mask": "causal", "query_start": 0}
    elif mask == "boolean":
        theirs["attn_mask"] = ours["mask"] = coin(seed, *shape)
    elif mask == "float":
        theirs["attn_mask"] = ours["bias"] = drawn(seed, *shape).masked_fill(~coin(seed, *shape), -torch.inf)
    context, weights = attend(query, key, value, **ours, return_map=True)
    torch.testing.assert_close(context, F.scaled_dot_product_attention(query, key, value, **theirs))
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
    theirs = nn.MultiheadAttention(width, heads, kdim=key_width, vdim=value_width, batch_first=True).double().eval()
    ours = MultiHeadAttention.from_torch(theirs)
    query, key, value = (
        drawn(1, batch, queries, width),
        drawn(2, batch, keys, key_width),
        drawn(3, batch, keys, value_width),
    )
    arguments: dict[str, Any] = {}
    given: dict[str, Any] = {}
    if padded:
        lengths = torch.arange(batch) % keys + 1
        # in PyTorch's module True means "may not"
        arguments["key_padding_mask"] = torch.arange(keys) >= lengths[:, None]
        given["lengths"] = lengths
    if hidden in ("boolean", "per_head"):
        table = coin(seed, *((queries, keys) if hidden == "boolean" else (batch, heads, queries, keys)))
        table[..., 0] = True
        arguments["attn_mask"] = ~(table if hidden == "boolean" else table.flatten(0, 1))
        given["mask"] = table
    elif hidden == "float" and not padded:
        arguments["attn_mask"] = given["bias"] = drawn(seed, queries, keys)
    expected, _ = theirs(query, key, value, need_weights=False, **arguments)
    torch.testing.assert_close(ours(query, key, value_memory=value, **given), expected)
