from __future__ import annotations

import torch
from torch import Tensor

from attent.learning import check


def solution(scores: Tensor) -> Tensor:
    largest = scores.max(dim=-1, keepdim=True).values
    powers = torch.exp(scores - largest)
    return powers / powers.sum(dim=-1, keepdim=True)


def by_logsumexp(scores: Tensor) -> Tensor:
    return torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True))


def test_solutions_pass() -> None:
    for function in (solution, by_logsumexp, lambda scores: torch.nn.functional.softmax(scores, dim=-1)):
        judgment = check(1, function)
        assert judgment.is_right and judgment.reason == "", judgment
        assert list(judgment.findings)[-1] == "as a part of attention"


def shared_largest(scores: Tensor) -> Tensor:
    powers = torch.exp(scores - torch.max(scores))
    return powers / powers.sum(dim=-1, keepdim=True)


def limited(scores: Tensor) -> Tensor:
    powers = torch.exp(torch.minimum(scores, torch.tensor(50.0)))
    return powers / powers.sum(dim=-1, keepdim=True)


def flat_sum(scores: Tensor) -> Tensor:
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return powers / torch.sum(powers, dim=-1)


def flat_largest(scores: Tensor) -> Tensor:
    powers = torch.exp(scores - torch.max(scores, dim=-1).values)
    return powers / powers.sum(-1, keepdim=True)


def values_and_indices(scores: Tensor) -> Tensor:
    powers = torch.exp(scores - torch.max(scores, dim=-1, keepdim=True))  # pyright: ignore[reportOperatorIssue]
    return powers / powers.sum(-1, keepdim=True)


def from_the_mean(scores: Tensor) -> Tensor:
    powers = torch.exp(scores - torch.mean(scores, dim=-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def from_the_smallest(scores: Tensor) -> Tensor:
    powers = torch.exp(scores - torch.min(scores, dim=-1, keepdim=True)[0])
    return powers / powers.sum(-1, keepdim=True)


def divided(scores: Tensor) -> Tensor:
    return solution(scores / scores.max(-1, keepdim=True)[0])


def test_usual_mistakes_are_named(assert_named) -> None:
    assert_named(
        1,
        {
            "exp overflows": lambda scores: torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True),
            "One largest score": shared_largest,
            "The sum goes over the wrong axis": lambda scores: torch.softmax(scores, dim=0),
            "The sum goes over the wrong axis2": lambda scores: torch.exp(scores) / torch.exp(scores).sum(-2, True),
            "The exponentials are divided by the sum of the whole": lambda scores: (
                torch.exp(scores - scores.max()) / torch.exp(scores - scores.max()).sum()
            ),
            "The sum lost its axis": flat_sum,
            "The largest scores lost their axis": flat_largest,
            "scores.max(-1) returns two": values_and_indices,
            "The exponentials are not divided": lambda scores: torch.exp(scores - scores.amax(-1, keepdim=True)),
            "The scores are divided by their sum": lambda scores: scores / torch.sum(scores, -1, keepdim=True),
            "The mean is subtracted": from_the_mean,
            "The smallest score is subtracted": from_the_smallest,
            "Scores are cut off": limited,
            "The scores are divided by the largest": divided,
            "This is the sigmoid": lambda scores: 1 / (1 + torch.exp(-scores)),
            "These are the logarithms": lambda scores: scores - torch.logsumexp(scores, -1, keepdim=True),
        },
    )


def test_the_number_is_quoted() -> None:
    judgment = check(1, lambda scores: torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True))
    assert judgment.findings["three scores"] == ""
    quoted = "weights[0] is tensor([nan, nan, nan]), expected tensor([0.0900, 0.2447, 0.6652])"
    assert judgment.findings["scores of 1,000"] == quoted
    assert str(judgment).splitlines()[3] == f"wrong  scores of 1,000: {quoted}"
