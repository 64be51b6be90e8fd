"""Recurrent translators' attention as the papers write it: one query and one key at a time, in float64.

Scores of Bahdanau et al. (2015) and Luong et al. (2015, §3.1), and location, local-m and local-p (§3.2).
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attent.attention import attend
from attent.attention.base import Score
from attent.attention.capture.watch import watch
from attent.attention.scores import Additive, Concat, Dot, Gated, General, ScaledDot
from attent.models.model import Memory
from attent.models.rnn import RNN
from attent.models.settings import RnnSettings

# the score for (query, key, hidden) widths, and its number for one query and one key
WRITTEN: dict[str, tuple[Callable[[int, int, int], Score], Callable[[Any, Tensor, Tensor], Tensor]]] = {
    # Bahdanau et al. 2015, A.1.2: vᵀ tanh(W s + U h)
    "additive": (
        Additive,
        lambda score, q, k: score.v @ torch.tanh(score.query_weight.T @ q + score.key_weight.T @ k + score.bias),
    ),
    # Luong et al. 2015, eq. 8: vᵀ tanh(W [h; h̄]) and hᵀ W h̄, and §3.1: W h
    "concat": (Concat, lambda score, q, k: score.v @ torch.tanh(score.weight.T @ torch.cat((q, k)))),
    "general": (lambda query, key, hidden: General(query, key), lambda score, q, k: q @ score.weight @ k),
    # σ(w_q·q + w_k·k + b) · qᵀk
    "gated": (
        lambda query, key, hidden: Gated(query, query),
        lambda score, q, k: (score.query_weight.T @ q + score.key_weight.T @ k + score.bias[0]).sigmoid()[0] * (q @ k),
    ),
    "dot": (lambda query, key, hidden: Dot(), lambda score, q, k: q @ k),
    "scaled_dot": (lambda query, key, hidden: ScaledDot(), lambda score, q, k: q @ k / math.sqrt(len(k))),
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
    build, formula = WRITTEN[name]
    torch.manual_seed(seed)
    score = build(query_width, key_width, hidden)
    query = torch.randn(queries, query_width)
    key, value = torch.randn(keys, query_width if name in OF_ONE_WIDTH else key_width), torch.randn(keys, value_width)
    context, weights = attend(*(tensor.to(dtype) for tensor in (query, key, value)), score=score, return_map=True)
    dense_weights = weights.dense()
    score.double()
    scores = torch.stack([torch.stack([formula(score, q, k) for k in key.double()]) for q in query.double()])
    expected = torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True)
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(context.double(), expected @ value.double(), **close)
    torch.testing.assert_close(dense_weights.double(), expected, **close)


SMALL = {"embedding_width": 6, "width": 10, "attention": "luong", "local_window": 2}
VARIANTS: list[dict[str, Any]] = [
    {"score": "location"},
    {"score": "general", "local": "m"},
    {"score": "general", "local": "p"},
    {"score": "location", "local": "p"},
    {"score": "dot", "local": "p", "local_window": 3},
    {"score": "concat", "local": "m", "input_feeding": False},
    {"score": "general", "local": "p", "input_feeding": False},
]
LENGTHS = (9, 4, 7)


def make(variant: dict[str, Any]) -> RNN:
    torch.manual_seed(3)
    model = RNN(RnnSettings.model_validate(SMALL | variant), 13, 11).double().eval()
    for parameter in model.decoder.cross_attention.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return model


def paper(model: RNN, state: Tensor, memory: Tensor, step: int) -> Tensor:
    """The weights of one step (S,), its state h_t (E,) and the source's states h̄ (S, n) given."""
    attention, settings = model.decoder.cross_attention, model.settings
    score: Any = attention.score
    source = len(memory)
    if settings.score == "location":
        scores = list((score.weight.T @ state)[:source])
    else:
        scores = [WRITTEN[settings.score][1](score, state, memory[position]) for position in range(source)]
    if settings.local == "none":
        total = sum(score.exp() for score in scores)
        return torch.stack([score.exp() / total for score in scores])
    centre, distance = float(step), settings.local_window
    if settings.local == "p":
        local: Any = attention.local
        # eq. 9
        centre = float(source / (1 + torch.exp(-(local.v.weight @ torch.tanh(local.hidden.weight @ state)))))
    window = [position for position in range(source) if centre - distance <= position <= centre + distance]
    total = sum(scores[index].exp() for index in window)
    weights = torch.zeros(source, dtype=torch.float64)
    for index in window:
        weights[index] = scores[index].exp() / total
        if settings.local == "p":
            # eq. 10
            weights[index] *= math.exp(-((index - centre) ** 2) / (2 * (distance / 2) ** 2))
    return weights


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: "-".join(map(str, variant.values())))
@torch.no_grad()
def test_the_weights_are_the_papers(variant: dict[str, Any]) -> None:
    model, tokens = make(variant), torch.randint(2, 11, (3, 6))
    memory = Memory(torch.randn(3, 9, 10, dtype=torch.float64), torch.tensor(LENGTHS))
    with watch(model) as captured:
        features = model.decode(memory, tokens)
    weights = captured["decoder.cross_attention"]
    dense_weight = weights.dense()[:, 0]
    for row, length in enumerate(LENGTHS):
        for step in range(6):
            expected = paper(model, weights.query[row, 0, step], memory.features[row, :length], step)
            torch.testing.assert_close(dense_weight[row, step, :length], expected, rtol=1e-12, atol=1e-12)
    assert not dense_weight[1, :, 4:].any()
    # what the model says is made of these very weights
    contexts = dense_weight @ memory.features
    displayed = model.decoder.output(contexts, weights.query[:, 0])
    torch.testing.assert_close(displayed, features, rtol=1e-12, atol=1e-12)
