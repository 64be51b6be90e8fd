"""Contexts and gradients in float32 against the formula in float64.

Every implementation, by name and chosen, where float32 is hard put. The unit of error is what the formula itself loses
in float32, in the worst of a few orders of the features, 4·10⁻⁶ of the largest number at least.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import attend
from attent.attention.attend import IMPLEMENTATIONS
from attent.attention.normalizers import TopK
from attent.attention.scores import Additive
from attent.errors import ImplementationError

# values as wide as keys: of others PyTorch takes no fused kernel
B, H, D = 2, 2, 16
LOWEST = torch.finfo(torch.float32).min
FLOOR, EPSILON, TIMES = 4e-6, torch.finfo(torch.float32).eps, 3.0
# of the features: they change how float32 rounds and nothing else, and of nearly equal scores one order may be right by
# chance
dice = torch.Generator().manual_seed(2)
ORDERS = [torch.arange(D), *(torch.randperm(D, generator=dice) for _ in range(8))]
# of which the fused kernels of short sequences serve the first, PyTorch's the second
LENGTHS = {"short": (70, 90), "long": (130, 300)}


@dataclass(frozen=True)
class Case:
    """What is hard: how large queries and keys are, what is added to scores, and other arguments of `attend`."""

    factor: float = 1.0
    bias: str | None = None
    are_integers: bool = False
    outlier: float = 0.0
    arguments: dict[str, Any] = field(default_factory=dict)

    def tensors(self, queries: int, keys: int) -> list[Tensor]:
        query, key, value = torch.randn(B, H, queries, D), torch.randn(B, H, keys, D), torch.randn(B, H, keys, D)
        if self.are_integers:
            query, key = torch.randint(-1, 2, query.shape).float(), torch.randint(-1, 2, key.shape).float()
        key[:, 0, 7] += self.outlier
        return [query * self.factor**0.5, key * self.factor**0.5, value]

    def added(self, queries: int, keys: int) -> Tensor | None:
        """What Hugging Face adds: 0 and the lowest number there is."""
        row, column = torch.arange(queries)[:, None], torch.arange(keys)
        hidden = {
            "whole rows": (row < torch.tensor([3, 10])[:, None, None]).expand(B, queries, keys),
            "entries": torch.rand(B, queries, keys) < 0.2,
            "columns": (column >= keys - torch.tensor([1, 20])[:, None, None]).expand(B, 1, keys),
            "causal, padded on the left": (column > row) | (column < torch.tensor([0, 9])[:, None, None]),
        }
        return None if self.bias is None else torch.zeros(()).masked_fill(hidden[self.bias], LOWEST)[:, None]


DROPOUT: dict[str, Any] = {"dropout": 0.3, "seed": 4}
CASES: dict[str, Case] = {
    "bias, whole rows": Case(bias="whole rows"),
    "bias, whole rows, dropout": Case(bias="whole rows", arguments=DROPOUT),
    "bias, entries": Case(bias="entries"),
    "bias, columns, dropout": Case(bias="columns", arguments=DROPOUT),
    "bias, causal, padded on the left": Case(bias="causal, padded on the left"),
    **{f"scores of 1e{power}": Case(10.0**power / 4) for power in (1, 3, 5, 6)},
    **{f"scores of 1e{power}, dropout": Case(10.0**power / 4, arguments=DROPOUT) for power in (2, 4, 6)},
    "causal scores of 1e6": Case(10.0**6 / 4, arguments={"mask": "causal"}),
    **{
        f"ties, {name}, {bias}": Case(1.0, bias, True, arguments={"score": "dot", "normalizer": normalizer})
        for name, normalizer, bias in (
            ("sparsemax", "sparsemax", None),
            ("sparsemax", "sparsemax", "entries"),
            ("entmax15", "entmax15", "entries"),
            ("hard", "hard", None),
            ("top_k", TopK(3), None),
            ("top_k", TopK(3), "entries"),
        )
    },
    **{f"gaussian, key at {far:g}": Case(outlier=far, arguments={"score": "gaussian"}) for far in (0.0, 1e2, 1e6)},
    "gaussian, dropout": Case(outlier=-1e5, arguments=DROPOUT | {"score": "gaussian"}),
    "additive": Case(bias="causal, padded on the left", arguments={"score": "additive"}),
    "additive, large": Case(1e3, arguments={"score": "additive"}),
}


def score_of(arguments: dict[str, Any], dtype: torch.dtype, order: Tensor) -> dict[str, Any]:
    """The arguments with a module in the place of a score that has parameters, for features in some order."""
    if arguments.get("score") != "additive":
        return arguments
    score = Additive(D, D, 12)
    for parameter in score.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        score.query_weight.copy_(score.query_weight[order])
        score.key_weight.copy_(score.key_weight[order])
    return arguments | {"score": score.to(dtype)}


def outcome(
    tensors: list[Tensor],
    bias: Tensor | None,
    implementation: str,
    dtype: torch.dtype,
    arguments: dict[str, Any],
    order: Tensor = ORDERS[0],
) -> list[Tensor]:
    """The context and the gradients of query, key and value."""
    leaves = [tensor.to(dtype).requires_grad_() for tensor in tensors]
    bias = None if bias is None else bias.to(dtype)
    arguments = score_of(arguments, dtype, order)
    context = attend(*leaves, bias=bias, implementation=implementation, **arguments)
    gradient = torch.randn(context.shape, generator=torch.Generator().manual_seed(8)).to(dtype)
    return [context.detach(), *torch.autograd.grad(context, leaves, gradient)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", CASES)
def test_no_implementation_loses_more_than_the_formula(name: str, length: str) -> None:
    case = CASES[name]
    tensors, bias = case.tensors(*LENGTHS[length]), case.added(*LENGTHS[length])
    right = outcome(tensors, bias, "reference", torch.float64, case.arguments)
    # where one key takes all weight, a score's gradient is 0 but for rounding, and a feature's that times how large
    # features are
    units = [torch.maximum(FLOOR * exact.abs().max(), torch.tensor(EPSILON * case.factor**0.5)) for exact in right]
    for order in ORDERS:
        query, key, value = tensors
        plain = outcome(
            [query[..., order], key[..., order], value], bias, "reference", torch.float32, case.arguments, order
        )
        plain[1:3] = [part[..., order.argsort()] for part in plain[1:3]]
        units = [
            torch.maximum(unit, (part - exact).abs().max())
            for unit, part, exact in zip(units, plain, right, strict=True)
        ]
    for implementation in ("auto", *IMPLEMENTATIONS):
        try:
            parts = outcome(tensors, bias, implementation, torch.float32, case.arguments)
        except ImplementationError:
            continue
        errors = [
            float((part - exact).abs().max() / unit) for part, exact, unit in zip(parts, right, units, strict=True)
        ]
        assert max(errors) <= TIMES, f"{implementation}: {errors}"
