from __future__ import annotations

import torch
from torch import Tensor

from attent.learning import check


def step(state, embedding, annotations, w, u, v, cell, change: str = "") -> tuple[Tensor, Tensor, Tensor]:
    """A step of the decoder, with a mistake."""
    count = annotations.shape[1]
    old = state
    if change == "early":
        state = cell(torch.cat([embedding, torch.zeros(len(state), annotations.shape[2])], 1), state)
    query = torch.einsum("bs,sn->bn", state, w)
    query = query[:, None] if change != "axis" else query
    keys = torch.einsum("bka,an->bkn", annotations, u)
    hidden = {
        "linear": lambda: query + keys,
        "halves": lambda: query.tanh() + keys.tanh(),
        "outside": lambda: query + keys,
        "product": lambda: (query * keys).tanh(),
    }.get(change, lambda: (query + keys).tanh())()
    scores = hidden.sum(2) if change == "sum" else torch.einsum("bkn,n->bk", hidden, v)
    scores = scores.tanh() if change == "outside" else scores
    weights = {"batch": scores.softmax(0), "scores": scores}.get(change, scores.softmax(1))
    values = keys if change == "projected" else annotations
    mixture = torch.full_like(weights, 1 / count) if change == "mean" else weights
    context = torch.einsum("bk,bka->ba", mixture, values)
    if change == "early":
        return state, context, weights
    parts = {"first": [context, embedding], "lost": [embedding, torch.zeros_like(context)]}.get(
        change, [embedding, context]
    )
    new = cell(torch.cat(parts, 1), torch.zeros_like(state) if change == "zeros" else state)
    if change == "late":
        weights = ((new @ w)[:, None] + keys).tanh() @ v
        weights = weights.softmax(1)
        context = (weights[..., None] * annotations).sum(1)
    return old if change == "kept" else new, context, weights


def test_solutions_pass() -> None:
    judgment = check(5, step)
    assert judgment.is_right, judgment
    (panel,) = judgment.panels.values()
    assert panel.weights.argmax(-1).tolist() == [0, 2, 1, 3]


def test_usual_mistakes_are_named(assert_named) -> None:
    changes = {
        "The weights come from the state after": "early",
        "The weights come from the state after2": "late",
        "The tanh is missing": "linear",
        "The tanh is applied to query and key": "halves",
        "The tanh is applied to the score": "outside",
        "v is missing": "sum",
        "The softmax goes over the batch": "batch",
        "The weights are scores": "scores",
        "The context is the mean": "mean",
        "The context is not passed on": "lost",
        "The input of the cell has the context first": "first",
        "The state is the one from before": "kept",
        "The cell starts from zeros": "zeros",
        "The values are the projected": "projected",
        "The state lacks an axis": "axis",
        "Query and key are multiplied": "product",
    }
    assert_named(
        5, {begin: (lambda *inputs, change=change: step(*inputs, change)) for begin, change in changes.items()}
    )
