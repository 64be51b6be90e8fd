from __future__ import annotations

import math

import torch
from torch import Tensor

from attent.learning import check


def solution(query: Tensor, key: Tensor) -> Tensor:
    return torch.einsum("...qd,...kd->...qk", query, key) / math.sqrt(query.size(-1))


def test_solutions_pass() -> None:
    assert check(2, solution).is_right
    assert check(2, lambda query, key: (query / query.shape[-1] ** 0.25) @ (key / key.shape[-1] ** 0.25).mT).is_right


def unit(vectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(vectors, dim=-1)


def sum_of_batch(query: Tensor, key: Tensor) -> Tensor:
    scores = solution(query, key)
    return scores if scores.dim() == 2 else scores.flatten(0, -3).sum(0)


def test_usual_mistakes_are_named(assert_named) -> None:
    assert_named(
        2,
        {
            "The scores are not scaled": lambda query, key: torch.einsum("...qd,...kd->...qk", query, key),
            "The scores are divided by D instead": lambda query, key: (
                query[..., :, None, :] * key[..., None, :, :]
            ).mean(-1),
            "The scores are multiplied": lambda query, key: query @ key.mT * math.sqrt(query.shape[-1]),
            "The scores are divided by the root of the number of keys": lambda query, key: (
                query @ key.mT / math.sqrt(key.mT.shape[-1])
            ),
            "The scores are divided by the root of the number of queries": lambda query, key: (
                query @ key.mT / math.sqrt(query.size(-2))
            ),
            "Queries and keys have changed places": lambda query, key: solution(key, query),
            "These are weights already": lambda query, key: torch.softmax(solution(query, key), -1),
            "This is the cosine": lambda query, key: unit(query) @ unit(key).mT,
            "The queries are compared with themselves": lambda query, key: solution(query, query),
            "Queries and keys are added": lambda query, key: (
                (query.sum(-1)[..., :, None] + key.sum(-1)[..., None, :]) / query.shape[-1] ** 0.5
            ),
            "key.T reverses all axes": lambda query, key: (
                query @ key.permute(*range(key.dim())[::-1]) / query.shape[-1] ** 0.5
            ),
            "key.transpose(0, 1)": lambda query, key: query @ torch.swapaxes(key, 0, 1) / math.sqrt(query.shape[-1]),
            "The products are summed over the batch": sum_of_batch,
            "query * key multiplies": lambda query, key: query * key / math.sqrt(query.shape[-1]),
        },
    )


def test_a_part_of_attention_must_have_gradients() -> None:
    """All cases are right, but the scores of one query depend on the others of its batch in training only."""
    judgment = check(2, lambda query, key: solution(query.detach(), key))
    assert not judgment.is_right and judgment.reason == ""
    (name, finding) = list(judgment.findings.items())[-1]
    assert name == "as a part of attention" and "the gradient of query must match finite differences" in finding
