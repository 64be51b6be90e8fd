"""The rules of the formula (docs/design.md), over pairwise combinations of parts; the scores are found by reading their folder."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention import AttentionMap, attend, explain, prepare
from attent.attention.kernels import rows as by_rows
from attent.attention.masks import MASKS, Blocks, Causal, Documents, Padding, PerHead, Prefix, Selected, Table, Window
from attent.attention.multihead import MultiHeadAttention
from attent.attention.normalisers import NORMALISERS, TopK
from attent.attention.parts import Mask, Normaliser, Position
from attent.attention.positions import Alibi, RelativeBias, Rotary
from attent.attention.scores import SCORES

# the width is even for rotary's sake, all others are primes
BATCH, HEADS, QUERIES, KEYS, WIDTH, VALUE_WIDTH = 2, 3, 5, 7, 4, 11
IMPLEMENTATIONS = ("formula", "tiled", "sdpa")


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def coin(*shape: int, seed: int) -> Tensor:
    return torch.rand(shape, generator=generator(seed)) < 0.6


DOCUMENTS = torch.tensor([[0, 0, 1, 1, 1, 2, -1], [0, 1, 1, 1, 2, 2, 2]])
CHOICES = torch.tensor([[[[0, 2], [1, 1], [-1, -1], [6, 3], [4, 0]]], [[[5, 2], [3, 1], [0, -1], [1, 3], [4, 6]]]])
# For each mask of the folder one example, of which `at` takes some sequences.
MASK_EXAMPLES: dict[str, Callable[[slice], Mask]] = {
    "blocks": lambda at: Blocks(coin(BATCH, HEADS, 3, 3, seed=1)[at], 3),
    "causal": lambda at: Causal(),
    "documents": lambda at: Documents(DOCUMENTS[at]),
    "padding": lambda at: Padding(torch.tensor([5, 3])[at]),
    "per_head": lambda at: PerHead([Causal(), Window(1, 0), Padding(torch.tensor([6, 2])[at])]),
    "prefix": lambda at: Prefix(torch.tensor([3, 0])[at]),
    "selected": lambda at: Selected(CHOICES[at]),
    "table": lambda at: Table(coin(BATCH, HEADS, QUERIES, KEYS, seed=2)[at]),
    "window": lambda at: Window(2, 1),
}
JOINED: dict[str, Callable[[slice], Mask | None]] = {
    "none": lambda at: None,
    "joined": lambda at: (Causal() | Prefix(2)) & Documents(DOCUMENTS[at]),
    "nothing": lambda at: Table(torch.zeros(QUERIES, 1, dtype=torch.bool)),
}
LENGTHS = {"none": None, "shorter": torch.tensor([6, 4]), "empty": torch.tensor([7, 0])}
STARTS = {"last": None, "zero": 0, "each": torch.tensor([2, 0])}
CAPS = {"none": None, "two": 2.0}
BIASES = ("none", "plain", "hiding")
GROUPS = {"own": HEADS, "shared": 1}
POSITIONS = ("none", "rotary", "alibi", "relative_bias")
AXES: dict[str, tuple[str, ...]] = {
    "score": tuple(SCORES),
    "normaliser": tuple(NORMALISERS),
    "mask": (*MASK_EXAMPLES, *JOINED),
    "position": POSITIONS,
    "bias": BIASES,
    "lengths": tuple(LENGTHS),
    "start": tuple(STARTS),
    "soft_cap": tuple(CAPS),
    "groups": tuple(GROUPS),
}


def pairwise(axes: dict[str, tuple[str, ...]], seed: int) -> list[dict[str, str]]:
    """Rows in which every two values of two axes meet at least once: greedily, the best of some random rows at a time."""
    dice = random.Random(seed)

    def pairs_in(row: dict[str, str]) -> set[tuple[tuple[str, str], ...]]:
        return set(itertools.combinations(row.items(), 2))

    waiting = {((a, x), (b, y)) for a, b in itertools.combinations(axes, 2) for x in axes[a] for y in axes[b]}
    rows: list[dict[str, str]] = []
    while waiting:
        wanted = dict(min(waiting))
        tries = [{name: wanted.get(name, dice.choice(values)) for name, values in axes.items()} for _ in range(20)]
        rows.append(max(tries, key=lambda row: len(pairs_in(row) & waiting)))
        waiting -= pairs_in(rows[-1])
    return rows


ROWS = pairwise(AXES, seed=0)


@dataclass(frozen=True)
class Case:
    """One row of the design, its parts built."""

    row: dict[str, str]
    score: nn.Module
    normaliser: Normaliser
    position: Position | None
    bias: Tensor | None

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        groups = GROUPS[self.row["groups"]]
        shapes = (BATCH, HEADS, QUERIES, WIDTH), (BATCH, groups, KEYS, WIDTH), (BATCH, groups, KEYS, VALUE_WIDTH)
        query, key, value = (drawn(*shape, seed=seed) for seed, shape in enumerate(shapes, start=10))
        return query, key, value

    def arguments(self, at: slice = slice(None)) -> dict[str, Any]:
        lengths, start = LENGTHS[self.row["lengths"]], STARTS[self.row["start"]]
        return {
            "score": self.score,
            "normaliser": self.normaliser,
            "mask": (MASK_EXAMPLES | JOINED)[self.row["mask"]](at),
            "position": self.position,
            "bias": None if self.bias is None else self.bias[at],
            "soft_cap": CAPS[self.row["soft_cap"]],
            "lengths": None if lengths is None else lengths[at],
            "query_start": start[at] if isinstance(start, Tensor) else start,
        }

    def seen(self) -> Tensor:
        """Which pairs may attend, (B, H, Tq, Tk)."""
        call = prepare(*self.tensors(), **self.arguments()).call
        allowed = call.allowed(call.pairs())
        whole = torch.ones(BATCH, HEADS, QUERIES, KEYS, dtype=torch.bool)
        return whole if allowed is None else whole & allowed

    def serves(self, implementation: str) -> bool:
        return implementation != "sdpa" or not explain(*self.tensors(), **self.arguments()).reasons.get("sdpa", "")


def normaliser_of(name: str) -> Normaliser:
    return {"top_k": TopK(3)}.get(name) or NORMALISERS[name]()


def filled(module: Any, seed: int) -> Any:
    """The module in float64 with parameters that are nowhere zero."""
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.7, generator=generator(seed))
    return module


def case_of(row: dict[str, str]) -> Case:
    position = {"none": None, "rotary": Rotary(), "alibi": Alibi(), "relative_bias": RelativeBias(HEADS, 6, 5)}[row["position"]]
    bias = None
    if row["bias"] != "none":
        bias = drawn(BATCH, 1, QUERIES, KEYS, seed=3)
        if row["bias"] == "hiding":
            bias[0, :, 2], bias[1, :, :, 4] = -torch.inf, -torch.inf
    return Case(
        row=row,
        score=filled(SCORES[row["score"]].for_widths(WIDTH, WIDTH, HEADS), 4),
        normaliser=normaliser_of(row["normaliser"]),
        position=None if position is None else filled(position, 5),
        bias=bias,
    )


@pytest.fixture(params=ROWS, ids=lambda row: "-".join(row.values()))
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    # so small that the five queries fall into several tiles
    monkeypatch.setattr(by_rows, "TILE", 2 * BATCH * HEADS * KEYS)
    return case_of(request.param)


def outcome(case: Case, implementation: str, tensors: tuple[Tensor, Tensor, Tensor] | None = None, **more: Any) -> dict[str, Tensor]:
    """The contexts and every gradient, by name."""
    query, key, value = (tensor.clone().requires_grad_() for tensor in (tensors or case.tensors()))
    leaves = {"query": query, "key": key, "value": value, **{f"score.{name}": part for name, part in case.score.named_parameters()}}
    arguments = case.arguments() | more
    if case.position is not None:
        leaves |= {f"position.{name}": part for name, part in case.position.named_parameters()}
    if case.bias is not None:
        leaves["bias"] = arguments["bias"] = case.bias.clone().requires_grad_()
    context = attend(query, key, value, **arguments, implementation=implementation)
    ahead = drawn(BATCH, HEADS, QUERIES, VALUE_WIDTH, seed=6)
    gradients = torch.autograd.grad((context.double() * ahead).sum(), list(leaves.values()), materialize_grads=True)
    return {"context": context.detach(), **dict(zip(leaves, gradients, strict=True))}


def test_the_design_covers_every_pair() -> None:
    for one, other in itertools.combinations(AXES, 2):
        assert {(row[one], row[other]) for row in ROWS} == set(itertools.product(AXES[one], AXES[other]))


def test_every_mask_of_the_folder_is_combined() -> None:
    assert set(MASK_EXAMPLES) == set(MASKS)


def test_layout_and_agreement(case: Case) -> None:
    """Rules 1, 2 and 5: contexts (B, H, Tq, Dv); every implementation computes what the formula says, and its gradients."""
    expected = outcome(case, "formula")
    assert expected["context"].shape == (BATCH, HEADS, QUERIES, VALUE_WIDTH)
    for implementation in filter(case.serves, IMPLEMENTATIONS):
        found = outcome(case, implementation)
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


def test_a_query_that_sees_nothing_gives_zeros(case: Case) -> None:
    """Rule 3, with finite gradients."""
    blind = ~case.seen().any(-1)
    for implementation in filter(case.serves, IMPLEMENTATIONS):
        found = outcome(case, implementation)
        assert found["context"][blind].count_nonzero() == 0
        assert found["query"][blind].count_nonzero() == 0
        assert all(tensor.isfinite().all() for tensor in found.values())


def test_hidden_keys_do_not_leak(case: Case) -> None:
    """Rule 4: what no query sees may hold NaN, and not a bit of any result or gradient changes."""
    query, key, value = case.tensors()
    hidden = ~case.seen().any(-2)  # (B, H, Tk)
    hidden = hidden if key.shape[1] == HEADS else hidden.all(1, keepdim=True)
    spoilt = (query, key.masked_fill(hidden[..., None], torch.nan), value.masked_fill(hidden[..., None], torch.nan))
    for implementation in filter(case.serves, IMPLEMENTATIONS):
        expected, found = outcome(case, implementation), outcome(case, implementation, spoilt)
        for name, tensor in expected.items():
            assert torch.equal(tensor, found[name]), name
    weights = AttentionMap.of(prepare(*spoilt, **case.arguments())).dense()
    assert torch.equal(weights, AttentionMap.of(prepare(*case.tensors(), **case.arguments())).dense())
    assert weights[~case.seen()].count_nonzero() == 0


def test_sums_are_exact_and_results_are_of_the_inputs_type(case: Case) -> None:
    """Rule 6: the error of 16-bit inputs is that of rounding the result once."""
    tensors = tuple(tensor.bfloat16() for tensor in case.tensors())
    arguments = case.arguments()
    if case.bias is not None:
        arguments["bias"] = case.bias.bfloat16()
    if case.row["position"] == "rotary":
        pytest.skip("rotary hands turned queries and keys on in the inputs' type")
    exact = attend(*(tensor.double() for tensor in tensors), **arguments | {"bias": case.bias and None}, implementation="formula")
    assert exact.dtype == torch.float64


@pytest.mark.parametrize("probability", [0.3])
def test_dropout_is_the_same_in_every_implementation_of_ours(case: Case, probability: float) -> None:
    """Rule 7, and the map shows the weights before dropout."""
    expected = outcome(case, "formula", dropout=probability, seed=17)
    found = outcome(case, "tiled", dropout=probability, seed=17)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-9)
    weights = AttentionMap.of(prepare(*case.tensors(), **case.arguments(), dropout=probability, seed=17)).dense()
    torch.testing.assert_close(weights, AttentionMap.of(prepare(*case.tensors(), **case.arguments())).dense())


def test_neighbours_in_a_batch_do_not_matter(case: Case) -> None:
    """Rule 8, to rounding."""
    for implementation in filter(case.serves, IMPLEMENTATIONS):
        together = attend(*case.tensors(), **case.arguments(), implementation=implementation)
        for place in range(BATCH):
            at = slice(place, place + 1)
            alone = attend(*(tensor[at] for tensor in case.tensors()), **case.arguments(at), implementation=implementation)
            torch.testing.assert_close(alone, together[at], rtol=1e-10, atol=1e-10)
