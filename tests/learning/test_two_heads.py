from __future__ import annotations

import torch
from torch import Tensor

from attent.learning import check


def by_halves(features, w_q, w_k, w_v, w_o, change: str = "") -> tuple[Tensor, Tensor]:
    """Two heads one after the other, with a mistake."""
    width = features.shape[-1]
    query, key, value = features @ w_q, features @ w_k, features @ w_v
    if change == "transposed":
        query, key, value = (torch.nn.functional.linear(features, weight) for weight in (w_q, w_k, w_v))
    if change == "value":
        value = features
    if change == "key":
        key = query
    contexts, maps = [], []
    for head in range(2):
        columns = slice(head * width // 2, (head + 1) * width // 2)
        if change == "turns":
            columns = slice(head, None, 2)
        if change == "first":
            columns = slice(0, width // 2)
        scores = query[..., columns] @ key[..., columns].mT
        scores = scores.mT if change == "swapped" else scores
        scores = scores / {"width": width**0.5, "plain": 1.0}.get(change, (width / 2) ** 0.5)
        weights = torch.softmax(scores, 1 if change == "queries" else -1)
        maps.append(weights)
        contexts.append(weights @ value[..., columns])
    if change == "order":
        contexts.reverse()
    heads = torch.cat(contexts, -1) if change != "stacked" else torch.stack(contexts, 1).reshape(features.shape)
    output = {"plain_output": heads, "output": heads @ w_o.T}.get(change, heads @ w_o)
    return output, torch.stack(maps, 1)


def reshaped(features, w_q, w_k, w_v, w_o) -> tuple[Tensor, Tensor]:
    rows, words, width = features.shape
    query, key, value = ((features @ weight).view(rows, 2, words, width // 2) for weight in (w_q, w_k, w_v))
    weights = (query @ key.mT / (width / 2) ** 0.5).softmax(-1)
    return (weights @ value).transpose(1, 2).reshape(rows, words, width) @ w_o, weights


def one_head(features, w_q, w_k, w_v, w_o) -> tuple[Tensor, Tensor]:
    query, key, value = features @ w_q, features @ w_k, features @ w_v
    weights = (query @ key.mT / features.shape[-1] ** 0.5).softmax(-1)
    return weights @ value @ w_o, weights[:, None]


def over_heads(features, w_q, w_k, w_v, w_o) -> tuple[Tensor, Tensor]:
    rows, words, width = features.shape
    query, key, value = (
        (features @ weight).view(rows, words, 2, width // 2).transpose(1, 2) for weight in (w_q, w_k, w_v)
    )
    weights = torch.softmax(query @ key.mT / (width / 2) ** 0.5, dim=1)
    return (weights @ value).transpose(1, 2).reshape(rows, words, width) @ w_o, weights


def test_solutions_pass() -> None:
    judgment = check(4, by_halves)
    assert judgment.is_right and [*judgment.panels] == ["head 0", "head 1"], judgment


def test_usual_mistakes_are_named(assert_named) -> None:
    changes = {
        "The columns go to the heads in turn": "turns",
        "The scores are divided by √E": "width",
        "The scores are not scaled": "plain",
        "The contexts are (B, 2, T, D)": "stacked",
        "W_O is missing": "plain_output",
        "The heads are in the wrong order": "order",
        "The matrices are transposed": "transposed",
        "W_O is transposed": "output",
        "Queries and keys have changed places": "swapped",
        "The values are the features": "value",
        "The keys are made with W_Q": "key",
        "Both heads have the first half": "first",
        "The softmax goes over the queries": "queries",
    }
    functions = {
        beginning: (lambda *inputs, change=change: by_halves(*inputs, change)) for beginning, change in changes.items()
    }
    functions |= {
        "The tensor is reshaped": reshaped,
        "There is only one head": one_head,
        "The softmax goes over the heads": over_heads,
    }
    assert_named(4, functions)


def test_both_results_are_needed() -> None:
    judgment = check(4, lambda *inputs: by_halves(*inputs)[0])
    finding = "output, weights must be tensor (1, 3, 4), tensor (1, 2, 3, 3), got tensor (1, 3, 4)"
    assert judgment.findings["one sentence"] == finding
