from __future__ import annotations

import torch
from torch import Tensor

from attent.learning import check

FLOAT = torch.finfo(torch.float32)


def solution(scores: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    scores = torch.where(allowed, scores, float("-inf"))
    return torch.where(allowed, torch.softmax(scores, -1), 0.0) @ value


def by_exponentials(scores: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    largest = torch.where(allowed, scores, FLOAT.min).amax(-1, keepdim=True)
    powers = torch.where(allowed, torch.where(allowed, scores, largest) - largest, -1e4).exp()
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-30) @ value


def test_solutions_pass() -> None:
    assert check(3, solution).is_right
    judgment = check(3, by_exponentials)
    assert judgment.is_right, judgment


def filled(number: float):
    return lambda scores, value, allowed: torch.softmax(torch.where(allowed, scores, number), -1) @ value


def triangle(scores: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    return solution(scores, value, torch.tril(torch.ones(scores.shape[-2:])) == 1)


def test_usual_mistakes_are_named(assert_named) -> None:
    assert_named(
        3,
        {
            "The mask is inverted": lambda scores, value, allowed: solution(scores, value, ~allowed),
            "The mask is applied after the softmax": lambda scores, value, allowed: (
                (torch.softmax(scores, -1) * allowed) @ value
            ),
            "Hidden scores are set to 0": lambda scores, value, allowed: torch.softmax(scores * allowed, -1) @ value,
            "Hidden scores are a number such as": filled(-1e4),
            "A row of −∞ alone is NaN": filled(float("-inf")),
            "A query that sees no key gets the mean": filled(-1e9),
            "A query that sees no key gets the mean2": filled(FLOAT.min),
            "The softmax goes over the queries": lambda scores, value, allowed: (
                torch.where(allowed, torch.softmax(torch.where(allowed, scores, float("-inf")), -2), 0.0) @ value
            ),
            "The mask is transposed": lambda scores, value, allowed: solution(scores, value, allowed.mT),
            "The mask is added to the scores": lambda scores, value, allowed: (
                torch.softmax(scores + allowed.float(), -1) @ value
            ),
            "−∞ · 0 is NaN": lambda scores, value, allowed: (
                torch.softmax(scores + (~allowed).float() * float("-inf"), -1) @ value
            ),
            "The mask is not used": lambda scores, value, allowed: torch.softmax(scores, -1) @ value,
            "A causal mask is used": triangle,
            "These are the weights": lambda scores, value, allowed: solution(
                scores, torch.eye(scores.shape[-1]), allowed
            ),
        },
    )


def test_a_part_of_attention_must_stay_finite() -> None:
    """The weights are right, but the gradients of a row without keys are NaN."""

    def function(scores: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
        powers = (scores - scores.amax(-1, keepdim=True)).exp() * allowed
        return (powers / powers.sum(-1, keepdim=True)).nan_to_num() @ value

    judgment = check(3, function)
    assert not judgment.is_right
