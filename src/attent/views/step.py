"""The steps of the formula with their equations, ready to be read by somebody who meets them for the first time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attent.attention.base import Score
from attent.attention.call import Call

# An example longer than this many terms teaches nothing more.
LONGEST_EXAMPLE = 8
PRODUCT = "scores = Q·Kᵀ"
# The scaled dot product's two steps bear the names that textbooks give them.
TEXTBOOK = {"products": "scores", "scores": "scaled"}


@dataclass(frozen=True)
class Step:
    """One step: what it is called, how it is computed, and its numbers.

    Args:
        name: such as "scores".
        equation: such as `scores = Q·Kᵀ`.
        meaning: a sentence on what it is for.
        axes: the letters of the axes, such as `(B, H, Tq, Tk)`.
        values: the numbers, (…, rows, columns).
        rows: a label for each row.
        columns: a label for each column.
        example: one number worked out; empty where that would be too long.
    """

    name: str
    equation: str
    meaning: str
    axes: str
    values: Tensor
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    example: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers' shape."""
        return tuple(self.values.shape)

    @property
    def sums(self) -> Tensor | None:
        """The sum of each row, (…, rows), of the one step where that says something: the weights."""
        return self.values.sum(-1) if self.name == "weights" else None

    def __str__(self) -> str:
        return f"{self.equation}   {self.axes} = {self.shape}"


def features(count: int) -> tuple[str, ...]:
    """Labels for features, which have no names of their own: d1, d2 and so on."""
    return tuple(f"d{number}" for number in range(1, count + 1))


def name_of(part: object) -> str:
    """What a part is called in a sentence."""
    return type(part).__name__.lower()


def equation_of(score: Score) -> str:
    """What a score says of itself in the first line of its docstring, from `score(q, k) =` on."""
    first = (type(score).__doc__ or "").strip().split("\n")[0]
    found = re.search(r"score\(q, k.?\) = .*", first)
    return found.group().rstrip(".") if found else f"score(q, k) = {type(score).__name__}(q, k)"


def vectors(name: str, equation: str, meaning: str, axes: str, values: Tensor, rows: Sequence[str]) -> Step:
    """A step whose every row is a vector, so that its columns are features."""
    return Step(name, equation, meaning, axes, values, tuple(rows), features(values.shape[-1]))


def formula_steps(
    call: Call, found: Mapping[str, Tensor], query: Tensor, key: Tensor, rows: Sequence[str], columns: Sequence[str], *, head: int = 0
) -> list[Step]:
    """What `formula.steps` found, step by step.

    Args:
        call: the call.
        found: the tensors by name, in order.
        query: the queries, (B, H, Tq, Dq).
        key: the keys, (B, H, Tk, Dk).
        rows: what each query is about.
        columns: what each key is about.
        head: the head that examples are taken from, from 0.
    """
    steps: list[Step] = []
    textbook = TEXTBOOK if "products" in found else {}
    for name, values in found.items():
        if name == "masked" and not torch.isneginf(values).any():
            continue  # nothing is hidden, so nothing happens
        axes, across, down = _axes(name, values, rows, columns)
        shown = textbook.get(name, name)
        before = steps[-1].name if steps else ""
        equation, meaning = _said(call, shown, before, set(found))
        step = Step(shown, equation, meaning, axes, values, tuple(across), tuple(down))
        if equation == PRODUCT:
            step = replace(step, example=_product(step, query, key, head))
        elif shown == "output":
            step = replace(step, example=_mixture(steps[-1], head))
        steps.append(step)
    return steps


def _axes(name: str, values: Tensor, rows: Sequence[str], columns: Sequence[str]) -> tuple[str, Sequence[str], Sequence[str]]:
    """The axes' letters, the rows' labels and the columns'."""
    match name:
        case "query_half":
            return "(B, H, Tq, hidden)", rows, features(values.shape[-1])
        case "key_half":
            return "(B, H, Tk, hidden)", columns, features(values.shape[-1])
        case "hidden":
            return "(B, H, Tq, Tk, hidden)", columns, features(values.shape[-1])
        case "output":
            return "(B, H, Tq, Dv)", rows, features(values.shape[-1])
        case _ if values.shape[-2:] == (len(rows), len(columns)):
            return "(B, H, Tq, Tk)", rows, columns
        case _:
            # a step of somebody's own score, of which only the numbers are known
            numbers = tuple(map(str, range(values.shape[-2])))
            return f"({', '.join('·' * values.dim())})", rows if len(rows) == len(numbers) else numbers, features(values.shape[-1])


def _said(call: Call, name: str, before: str, found: set[str]) -> tuple[str, str]:
    """A step's equation and meaning."""
    match name:
        case "scores":
            return _score(call, found), "How well each key (column) fits each query (row)."
        case "scaled":
            width, scale = call.query_width, call.score.scale(call.query_width)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
            usual = abs(scale - width**-0.5) < 1e-9
            equation = f"scaled = scores / √Dk = scores / √{width}" if usual else f"scaled = scores · {scale:.4g}"
            return equation, "The same, kept at one size however wide the vectors are; large scores would let one key take it all."
        case "query_half":
            return "query_half[i] = W₁·Q[i] + b", "The query's part of the network that compares."
        case "key_half":
            return "key_half[j] = W₂·K[j]", "The key's part of it."
        case "hidden":
            return "hidden[i, j] = tanh(query_half[i] + key_half[j])", "Where the two meet, for every pair."
        case "gate":
            return "gate[i, j] = σ(W_g·[Q[i]; K[j]] + b_g)", "Whether the score behind the gate is let through, from 0 to 1."
        case "inner":
            return "inner[i, j] = the score behind the gate", "How well they would fit if the gate were open."
        case "capped":
            return f"capped = {call.soft_cap:g} · tanh({before} / {call.soft_cap:g})", "No score grows beyond the cap."
        case "biased":
            return f"biased[i, j] = {before}[i, j] + bias(i, j)", "A term for where the two stand, or one that was given."
        case "masked":
            return f"masked[i, j] = {before}[i, j] where i may look at j, else -∞", "What may not be looked at can get no weight."
        case "weights" if before == "normalised":
            return (
                f"weights[i, j] = normalised[i, j] · {name_of(call.weighting)}(i, j)",
                "More for some keys than for others; no row need sum to 1.",
            )
        case "weights" | "normalised":
            return _weights(call, name, before)
        case "dropped":
            return "dropped = weights with some set to 0, the others made larger", "Dropout, in training alone."
        case "output":
            return f"output = {before}·V", "For each query the rows of V, mixed by its row of weights: what it takes away."
        case _:
            return f"{name}, on the way to {equation_of(call.score)}", "A step of this score's own."


def _score(call: Call, found: set[str]) -> str:
    if "products" in found or equation_of(call.score) == "score(q, k) = qᵀk":
        return PRODUCT
    if "hidden" in found:
        return "scores[i, j] = v·hidden[i, j]"
    if "gate" in found:
        return "scores = gate ⊙ inner"
    return f"scores[i, j] = score(Q[i], K[j]),  {equation_of(call.score)}"


def _weights(call: Call, called: str, before: str) -> tuple[str, str]:
    name = name_of(call.normalizer)
    if call.normalizer.distribution:
        meaning = "How each query divides its attention: every row sums to 1."
    else:
        meaning = f"How much each query looks at each key; under {name} a row need not sum to 1."
    if name == "softmax":
        meaning = f"exp {before}[i, j] / Σⱼ exp {before}[i, j]. {meaning}"
    return f"{called} = {name}({before})", meaning


def _product(step: Step, query: Tensor, key: Tensor, head: int) -> str:
    """The second query and the first key, multiplied out, where there are few features."""
    row = min(1, len(step.rows) - 1)
    if not 0 < query.shape[-1] <= LONGEST_EXAMPLE or not step.columns:
        return ""
    numbers = zip(query[0, head, row].tolist(), key[0, head, 0].tolist(), strict=True)
    terms = " + ".join(f"({one:.2f})({other:.2f})" for one, other in numbers)
    return f"scores[{step.rows[row]}, {step.columns[0]}] = {terms} = {step.values[0, head, row, 0].item():.2f}{_in_head(step, head)}"


def _mixture(weights: Step, head: int) -> str:
    """How the first query's output is mixed, where there are few keys."""
    if not 0 < len(weights.columns) <= LONGEST_EXAMPLE:
        return ""
    terms = " + ".join(f"{share:.2f}·V[{label}]" for label, share in zip(weights.columns, weights.values[0, head, 0].tolist(), strict=True))
    return f"output[{weights.rows[0]}] = {terms}{_in_head(weights, head)}"


def _in_head(step: Step, head: int) -> str:
    return f" in head {head}" if step.values.shape[1] > 1 else ""
