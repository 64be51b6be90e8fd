"""The scores of the recurrent translators as their papers write them: one query and one key at a time, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attent.attention import attend
from attent.attention.base import Score
from attent.attention.scores import Additive, Concat, Dot, Gated, General, ScaledDot

Pair = Callable[[Tensor, Tensor], Tensor]


def additive(score: Additive) -> Pair:
    """Bahdanau et al. 2015, A.1.2: vᵀ tanh(W s + U h)."""
    v, bias = score.v, score.bias
    assert v is not None
    assert bias is not None
    return lambda query, key: v @ torch.tanh(score.query_weight.T @ query + score.key_weight.T @ key + bias)


def concat(score: Concat) -> Pair:
    """Luong et al. 2015, eq. 8: vᵀ tanh(W [h; h̄])."""
    return lambda query, key: score.v @ torch.tanh(score.weight.T @ torch.cat((query, key)))


def general(score: General) -> Pair:
    """Luong et al. 2015, eq. 8: hᵀ W h̄."""
    return lambda query, key: query @ score.weight @ key


def gated(score: Gated) -> Pair:
    """σ(W_g [q; k] + b_g) · qᵀk."""
    weight = torch.cat((score.query_weight, score.key_weight))[:, 0]
    return lambda query, key: torch.sigmoid(weight @ torch.cat((query, key)) + score.bias[0, 0]) * (query @ key)


# the score for (query, key, hidden) widths, and its formula
WRITTEN: dict[str, tuple[Callable[[int, int, int], Score], Callable[..., Pair]]] = {
    "additive": (Additive, additive),
    "concat": (Concat, concat),
    "general": (lambda query, key, hidden: General(query, key), general),
    "gated": (lambda query, key, hidden: Gated(query, query), gated),
    "dot": (lambda query, key, hidden: Dot(), lambda score: lambda query, key: query @ key),
    "scaled_dot": (
        lambda query, key, hidden: ScaledDot(),
        lambda score: lambda query, key: query @ key / math.sqrt(len(key)),
    ),
}
OF_ONE_WIDTH = ("gated", "dot", "scaled_dot")


@pytest.mark.parametrize("name", WRITTEN)
@settings(max_examples=15)
@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 6),
    seed=st.integers(0, 99),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_the_context_is_the_papers(name: str, sizes: tuple[int, ...], seed: int, dtype: torch.dtype) -> None:
    queries, keys, query_width, key_width, value_width, hidden = sizes
    build, written = WRITTEN[name]
    torch.manual_seed(seed)
    score = build(query_width, key_width, hidden)
    query = torch.randn(queries, query_width)
    key, value = torch.randn(keys, query_width if name in OF_ONE_WIDTH else key_width), torch.randn(keys, value_width)
    context, weights = attend(*(tensor.to(dtype) for tensor in (query, key, value)), score=score, return_map=True)
    dense_weights = weights.dense()

    pair = written(score.double())
    scores = torch.stack([torch.stack([pair(item, second) for second in key.double()]) for item in query.double()])
    expected = torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True)
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(context.double(), expected @ value.double(), **close)
    torch.testing.assert_close(dense_weights.double(), expected, **close)
