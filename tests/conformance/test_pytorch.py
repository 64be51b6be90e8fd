"""PyTorch's own attention as an oracle, over drawn shapes, masks and head layouts."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from attent.attention import attend
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
