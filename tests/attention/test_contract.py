"""The rules of the formula (docs/design.md), over pairwise combinations of parts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attent.attention import AttentionMap, attend, explain, masks, prepare, reference
from attent.attention.backends import bands
from attent.attention.base import LoweredSide, Mask, Normalizer, Position
from attent.attention.masks import MASKS, Causal, Documents, Padding, Prefix, Table, Window
from attent.attention.multihead import MultiHeadAttention
from attent.attention.normalizers import NORMALIZERS, TopK
from attent.attention.positions import Alibi, RelativeBias, Rotary
from attent.attention.scores import SCORES
from attent.attention.weightings import WEIGHTINGS, GaussianWindow
from attent.testing import check_part

# the width is even for rotary's sake, all others are primes
BATCH, HEADS, QUERIES, KEYS, WIDTH, VALUE_WIDTH = 2, 3, 5, 7, 4, 11
IMPLEMENTATIONS = ("reference", "tiled", "sdpa")


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


DOCUMENTS = torch.tensor([[0, 0, 1, 1, 1, 2, -1], [0, 1, 1, 1, 2, 2, 2]])
CHOICES = torch.tensor([[[[0, 2], [1, 1], [-1, -1], [6, 3], [4, 0]]], [[[5, 2], [3, 1], [0, -1], [1, 3], [4, 6]]]])
CENTRES = 3 + 2 * drawn(BATCH, QUERIES, seed=7)
# For each mask of the folder one example, of which `at` takes some sequences.
MASK_EXAMPLES: dict[str, Callable[[slice], Mask]] = {
    "around": lambda at: masks.Around(CENTRES[at], 2),
    "causal": lambda at: Causal(),
    "documents": lambda at: Documents(DOCUMENTS[at]),
    "excluded": lambda at: masks.Excluded(CHOICES[at]),
    "padding": lambda at: Padding(torch.tensor([5, 3])[at]),
    "per_head": lambda at: masks.PerHead([Causal(), Window(1, 0), Padding(torch.tensor([6, 2])[at])]),
    "prefix": lambda at: Prefix(torch.tensor([3, 0])[at]),
    "selected": lambda at: masks.Selected(CHOICES[at]),
    "table": lambda at: Table(drawn(BATCH, HEADS, QUERIES, KEYS, seed=2)[at] < 0.3),
    "window": lambda at: Window(2, 1),
}
JOINED: dict[str, Callable[[slice], Mask | None]] = {
    "none": lambda at: None,
    "joined": lambda at: (Causal() | Prefix(2)) & Documents(DOCUMENTS[at]),
    "nothing": lambda at: Table(torch.zeros(QUERIES, 1, dtype=torch.bool)),
}
LENGTHS = {"none": None, "shorter": torch.tensor([6, 4]), "empty": torch.tensor([7, 0])}
STARTS = {"last": None, "zero": 0, "each": torch.tensor([2, 0])}
WEIGHTING_EXAMPLES = {"none": lambda at: None, "gaussian_window": lambda at: GaussianWindow(CENTRES[at], 1.3)}
Row = dict[str, str]
AXES: dict[str, tuple[str, ...]] = {
    "score": tuple(SCORES),
    "normalizer": tuple(NORMALIZERS),
    "mask": (*MASK_EXAMPLES, *JOINED),
    "position": ("none", "rotary", "alibi", "relative_bias"),
    "bias": ("none", "plain", "hiding"),
    "lengths": tuple(LENGTHS),
    "start": tuple(STARTS),
    "soft_cap": ("none", "2"),
    "groups": ("3", "1"),
    "weighting": tuple(WEIGHTING_EXAMPLES),
}


def pairwise(axes: dict[str, tuple[str, ...]], seed: int, *, independent: tuple[str, str] | None = None) -> list[Row]:
    """Rows in which every two values of two axes meet: greedily, the best of some random rows at a time.

    The values of two independent axes need not.
    """
    dice = random.Random(seed)

    def pairs_in(row: Row) -> set[tuple[tuple[str, str], ...]]:
        return set(itertools.combinations(row.items(), 2))

    names = [pair for pair in itertools.combinations(axes, 2) if pair != independent]
    waiting = {((a, x), (b, y)) for a, b in names for x in axes[a] for y in axes[b]}
    rows: list[Row] = []
    while waiting:
        expected = dict(min(waiting))
        tries = [{name: expected.get(name, dice.choice(values)) for name, values in axes.items()} for _ in range(40)]
        rows.append(max(tries, key=lambda row: len(pairs_in(row) & waiting)))
        waiting -= pairs_in(rows[-1])
    return rows


# once more for the calls that PyTorch's attention serves, of which there are few among all
FOR_SDPA = AXES | {
    "score": tuple(name for name, score in SCORES.items() if score.form == "dot"),
    "normalizer": ("softmax",),
    "position": ("none", "rotary"),
    "soft_cap": ("none",),
    "weighting": ("none",),
}
ROWS = pairwise(AXES, seed=0) + pairwise(FOR_SDPA, seed=0, independent=("score", "mask"))


@dataclass(frozen=True)
class Case:
    """One row of the design, its parts built."""

    row: Row
    score: nn.Module
    normalizer: Normalizer
    position: Position | None
    bias: Tensor | None

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        groups = int(self.row["groups"])
        shapes = (BATCH, HEADS, QUERIES, WIDTH), (BATCH, groups, KEYS, WIDTH), (BATCH, groups, KEYS, VALUE_WIDTH)
        query, key, value = (drawn(*shape, seed=seed) for seed, shape in enumerate(shapes, start=10))
        return query, key, value

    def arguments(self, at: slice = slice(None)) -> dict[str, Any]:
        lengths, start = LENGTHS[self.row["lengths"]], STARTS[self.row["start"]]
        return {
            "score": self.score,
            "normalizer": self.normalizer,
            "mask": (MASK_EXAMPLES | JOINED)[self.row["mask"]](at),
            "position": self.position,
            "bias": None if self.bias is None else self.bias[at],
            "soft_cap": None if self.row["soft_cap"] == "none" else float(self.row["soft_cap"]),
            "lengths": None if lengths is None else lengths[at],
            "query_start": start[at] if isinstance(start, Tensor) else start,
            "weighting": WEIGHTING_EXAMPLES[self.row["weighting"]](at),
        }

    def seen(self) -> Tensor:
        """Which pairs may attend, (B, H, Tq, Tk)."""
        call = prepare(*self.tensors(), **self.arguments()).call
        allowed = call.allowed(call.pairs())
        whole = torch.ones(BATCH, HEADS, QUERIES, KEYS, dtype=torch.bool)
        return whole if allowed is None else whole & allowed

    def serves(self, implementation: str) -> bool:
        return implementation != "sdpa" or explain(*self.tensors(), **self.arguments()).chosen == "sdpa"


def normalizer_of(name: str) -> Normalizer:
    return {"top_k": TopK(3)}.get(name) or NORMALIZERS[name]()


def filled(module: Any, seed: int) -> Any:
    """The module in float64 with parameters that are nowhere zero."""
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.7, generator=torch.Generator().manual_seed(seed))
    return module


def case_of(row: Row) -> Case:
    positions = {"rotary": Rotary(), "alibi": Alibi(), "relative_bias": RelativeBias(HEADS, 6, 5)}
    position = positions.get(row["position"])
    bias = None if row["bias"] == "none" else drawn(BATCH, 1, QUERIES, KEYS, seed=3)
    if bias is not None and row["bias"] == "hiding":
        bias[0, :, 2], bias[1, :, :, 4] = -torch.inf, -torch.inf
    score = filled(SCORES[row["score"]].for_widths(WIDTH, WIDTH, HEADS), 4)
    return Case(row, score, normalizer_of(row["normalizer"]), position and filled(position, 5), bias)


@pytest.fixture(params=ROWS, ids=lambda row: "-".join(row.values()))
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    # so small that the five queries fall into several tiles
    monkeypatch.setattr(bands, "TILE", 2 * BATCH * HEADS * KEYS)
    return case_of(request.param)


def outcome(
    case: Case, implementation: str, tensors: tuple[Tensor, Tensor, Tensor] | None = None, **more: Any
) -> dict[str, Tensor]:
    """The contexts and every gradient, by name."""
    query, key, value = (tensor.clone().requires_grad_() for tensor in (tensors or case.tensors()))
    leaves = {"query": query, "key": key, "value": value}
    leaves |= {f"score.{name}": part for name, part in case.score.named_parameters()}
    arguments = case.arguments() | more
    if case.position is not None:
        leaves |= {f"position.{name}": part for name, part in case.position.named_parameters()}
    if case.bias is not None:
        leaves["bias"] = arguments["bias"] = case.bias.clone().requires_grad_()
    context = attend(query, key, value, **arguments, implementation=implementation)
    ahead = drawn(BATCH, HEADS, QUERIES, VALUE_WIDTH, seed=6)
    gradients = torch.autograd.grad((context.double() * ahead).sum(), list(leaves.values()), materialize_grads=True)
    return {"context": context.detach(), **dict(zip(leaves, gradients, strict=True))}


def test_every_mask_and_weighting_is_tried_and_pytorchs_attention_often() -> None:
    assert set(MASK_EXAMPLES) == set(MASKS)
    assert set(WEIGHTING_EXAMPLES) == {"none", *WEIGHTINGS}
    assert sum(case_of(row).serves("sdpa") for row in ROWS) > len(MASK_EXAMPLES) * len(AXES["bias"])


def test_every_implementation_gives_the_formulas_numbers_and_gradients(case: Case) -> None:
    """Rules 1, 2, 3 and 5: contexts (B, H, Tq, Dv), zeros for a query that sees nothing, and finite gradients."""
    expected, blind = outcome(case, "reference"), ~case.seen().any(-1)
    assert expected["context"].shape == (BATCH, HEADS, QUERIES, VALUE_WIDTH)
    assert all(tensor.isfinite().all() for tensor in expected.values())
    for implementation in filter(case.serves, IMPLEMENTATIONS):
        actual = expected if implementation == "reference" else outcome(case, implementation)
        assert actual["context"][blind].count_nonzero() == actual["query"][blind].count_nonzero() == 0
        for name, tensor in expected.items():
            torch.testing.assert_close(actual[name], tensor, rtol=1e-9, atol=1e-9)


def test_hidden_keys_do_not_leak(case: Case) -> None:
    """Rule 4: what no query sees may hold NaN or anything, and not a bit of any result or gradient changes."""
    query, key, value = case.tensors()
    hidden = ~case.seen().any(-2)  # (B, H, Tk)
    hidden = (hidden if key.shape[1] == HEADS else hidden.all(1, keepdim=True))[..., None]
    for implementation in filter(case.serves, IMPLEMENTATIONS):
        expected = outcome(case, implementation)
        for garbage in (torch.nan, torch.inf if ROWS.index(case.row) % 2 else 1e6):
            spoilt = (query, key.masked_fill(hidden, garbage), value.masked_fill(hidden, garbage))
            for name, tensor in outcome(case, implementation, spoilt).items():
                assert torch.equal(tensor, expected[name]), name
    spoilt = (query, key.masked_fill(hidden, torch.nan), value)
    weights = AttentionMap.of(prepare(*spoilt, **case.arguments())).dense()
    assert torch.equal(weights, AttentionMap.of(prepare(*case.tensors(), **case.arguments())).dense())
    assert weights[~case.seen()].count_nonzero() == 0


def test_sums_are_exact_and_results_are_of_the_inputs_type(case: Case) -> None:
    """Rule 6: with 16-bit inputs a result is off by one rounding of its own, and by float32's."""
    query, key, value = (tensor.bfloat16() for tensor in case.tensors())
    arguments = case.arguments() | {"bias": None if case.bias is None else case.bias.bfloat16()}
    call, queries, keys, _ = prepare(query, key, value, **arguments)
    exactly = replace(call, dtype=torch.float64, bias=None if call.bias is None else call.bias.double())
    exact = reference.run(exactly, queries.double(), LoweredSide(keys.features.double()), value.double())
    for implementation in ("reference", "tiled"):
        output = attend(query, key, value, **arguments, implementation=implementation)
        assert output.dtype == torch.bfloat16
        torch.testing.assert_close(output.double(), exact, rtol=2**-8, atol=1e-5)


def test_dropout_is_the_same_in_every_implementation_of_ours(case: Case) -> None:
    """Rule 7, and the map shows the weights before dropout."""
    expected = outcome(case, "reference", dropout=0.3, seed=17)
    actual = outcome(case, "tiled", dropout=0.3, seed=17)
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, rtol=1e-9, atol=1e-9)
    weights = AttentionMap.of(prepare(*case.tensors(), **case.arguments(), dropout=0.3, seed=17)).dense()
    torch.testing.assert_close(weights, AttentionMap.of(prepare(*case.tensors(), **case.arguments())).dense())


def test_neighbours_in_a_batch_do_not_matter(case: Case) -> None:
    """Rule 8, to rounding."""
    for implementation in filter(case.serves, IMPLEMENTATIONS):
        joint = attend(*case.tensors(), **case.arguments(), implementation=implementation)
        for position in range(BATCH):
            at = slice(position, position + 1)
            single = attend(
                *(tensor[at] for tensor in case.tensors()), **case.arguments(at), implementation=implementation
            )
            torch.testing.assert_close(single, joint[at], rtol=1e-10, atol=1e-10)


CACHED = pairwise({name: AXES[name] for name in ("score", "normalizer", "position", "groups")}, seed=1)


@pytest.mark.parametrize("row", CACHED, ids=lambda row: "-".join(row.values()))
def test_cached_steps_equal_the_whole_pass(row: Row) -> None:
    """One token at a time against the stored keys and values, and the whole sequence at once under the causal mask."""
    attention = MultiHeadAttention(
        6,
        HEADS,
        key_head_width=WIDTH,
        value_head_width=VALUE_WIDTH,
        key_value_heads=int(row["groups"]),
        score=row["score"] if row["score"] != "gaussian" else SCORES["gaussian"](torch.tensor([0.5, 1.0, 2.0, 3.0])),
        normalizer=normalizer_of(row["normalizer"]),
        position=None if row["position"] == "none" else row["position"],
    )
    features = drawn(BATCH, QUERIES, 6, seed=20)
    whole = filled(attention, 21)(features, mask="causal")
    cache, steps = None, []
    for token in features.split(1, 1):
        cache = attention.remember(token, cache)
        steps.append(attention.recall(token, cache, mask="causal"))
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-9, atol=1e-9)
    # what search does between steps: the other sequence twice, one more token for both
    rows = torch.tensor([1, 1])
    more = drawn(BATCH, 1, 6, seed=22)
    output = attention.recall(more, attention.remember(more, cache.select(rows)))
    expected = attention(torch.cat((features[rows], more), 1), mask="causal")[:, -1:]
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)


PARTS: dict[str, Any] = {
    **{name: score.for_widths(WIDTH, WIDTH, HEADS) for name, score in SCORES.items()},
    **{name: normalizer_of(name) for name in NORMALIZERS},
    **{name: part for name, of in (MASK_EXAMPLES | JOINED | WEIGHTING_EXAMPLES).items() if (part := of(slice(None)))},
    "rotary": Rotary(),
    "rotary of halves": Rotary(interleaved=False),
    "alibi": Alibi(),
    "relative_bias": RelativeBias(HEADS, 6, 5),
}


@pytest.mark.parametrize("name", PARTS)
def test_every_part_holds_what_its_slot_asks(name: str) -> None:
    part = filled(PARTS[name], 1) if isinstance(PARTS[name], nn.Module) else PARTS[name]
    check_part(part, batch=BATCH, heads=HEADS, queries=QUERIES, keys=KEYS, width=WIDTH)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["reference", "tiled"])
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["normalizer"] != "hard"], ids=lambda row: "-".join(row.values())
)
def test_gradients_are_those_of_finite_differences(
    row: Row, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bands, "TILE", 2 * BATCH * HEADS * KEYS)
    case = case_of(row)
    leaves = [tensor.requires_grad_() for tensor in case.tensors()] + list(case.score.parameters())
    leaves += [] if case.position is None else list(case.position.parameters())

    def context(*tensors: Tensor) -> Tensor:
        return attend(*tensors[:3], **case.arguments(), implementation=implementation)

    assert torch.autograd.gradcheck(context, leaves, fast_mode=True)
