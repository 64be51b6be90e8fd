"""Luong et al. (2015), §3.1 and §3.2, as the paper writes them, a step and a key at a time in float64.

Location, local-m, local-p.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.models.model import Memory
from attent.models.rnn import RNN
from attent.models.settings import RnnSettings

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
    match settings.score:
        case "location":
            scores = [(score.weight.T @ state)[position] for position in range(source)]
        case "general":
            scores = [state @ score.weight @ memory[position] for position in range(source)]
        case "dot":
            scores = [state @ memory[position] for position in range(source)]
        case _:
            scores = [
                score.v @ torch.tanh(score.weight.T @ torch.cat((state, memory[position])))
                for position in range(source)
            ]
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
