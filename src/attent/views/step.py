"""The steps of the formula with their equations, for readers who see them for the first time."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attent.attention.base import Score
from attent.attention.call import Call
from attent.views.labels import visible

# Longer examples would not explain more.
MAX_EXAMPLE_TERMS = 8
PRODUCT = "scores = Q·Kᵀ"
# The names that textbooks give to the two steps of the scaled dot product.
TEXTBOOK = {"products": "scores", "scores": "scaled"}
# Equations and meanings; {before} is the step before.
TEXTS = {
    "query_half": ("query_half[i] = W₁·Q[i] + b", "The query's part of the network that compares."),
    "key_half": ("key_half[j] = W₂·K[j]", "The key's part of it."),
    "hidden": ("hidden[i, j] = tanh(query_half[i] + key_half[j])", "Where the two meet, for every pair."),
    "pairs": ("pairs[i, j] = [Q[i]; K[j]]", "Query and key, one below the other, for every pair."),
    "unit_query": ("unit_query[i] = Q[i] / |Q[i]|", "The queries' directions, each of length 1."),
    "unit_key": ("unit_key[j] = K[j] / |K[j]|", "The keys' directions."),
    "cosines": (
        "cosines = unit_query·unit_keyᵀ",
        "1 where the two point the same way, 0 at right angles, −1 where they are opposite.",
    ),
    "difference": (
        "difference[i, j] = (Q[i] − K[j]) / σ",
        "How far apart the two are in each feature, for every pair.",
    ),
    "squared_distance": ("squared_distance[i, j] = Σ_d difference[i, j, d]²", "The square of their distance."),
    "products": (PRODUCT.replace("scores", "products"), "The products of query and key."),
    "gate": (
        "gate[i, j] = σ(W_g·[Q[i]; K[j]] + b_g)",
        "Whether the score behind the gate is let through, from 0 to 1.",
    ),
    "biased": ("biased[i, j] = {before}[i, j] + bias(i, j)", "A term for where the two stand, or one that was given."),
    "masked": (
        "masked[i, j] = {before}[i, j] where i may look at j, else -∞",
        "What may not be looked at can get no weight.",
    ),
    "dropped": ("dropped = weights with some set to 0, the others made larger", "Dropout, in training alone."),
    "output": ("output = {before}·V", "For each query the rows of V, mixed by its row of weights: what it takes away."),
}


@dataclass(frozen=True)
class WalkStep:
    """A step of an attention: its name, its equation and its numbers.

    Args:
        name: the name of the step, such as "scores".
        equation: the equation of the step, such as `scores = Q·Kᵀ`.
        meaning: a sentence that explains its purpose.
        axes: the letters of the axes, such as `(B, H, Tq, Tk)`.
        values: the numbers, (…, rows, columns).
        rows: a label for each row.
        columns: a label for each column.
        example: the calculation of one number; empty if it would be too long.
        cells: a word shown before each number, if the columns differ from row to row; none by default.
    """

    name: str
    equation: str
    meaning: str
    axes: str
    values: Tensor
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    example: str = ""
    cells: tuple[tuple[str, ...], ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers."""
        return tuple(self.values.shape)

    @property
    def sums(self) -> Tensor | None:
        """The sum of each row of the weights, (…, rows); None for other steps, where it has no meaning."""
        return self.values.sum(-1) if self.name == "weights" else None

    def __str__(self) -> str:
        return f"{self.equation}   {self.axes} = {self.shape}"


def features(count: int) -> tuple[str, ...]:
    """Return the labels d1, d2 and so on for features, which have no names."""
    return tuple(f"d{number}" for number in range(1, count + 1))


def name_of(part: object) -> str:
    """Return the name of a part, for use in a sentence."""
    return type(part).__name__.lower()


def first_line(part: object) -> str:
    """Return the first line of the docstring of a part's class."""
    return (type(part).__doc__ or "").strip().split("\n")[0]


def equation_of(score: Score) -> str:
    """Return the equation in the first line of a score's docstring, from `score(q, k) =` on."""
    equation = re.search(r"score\(q, k.?\) = .*", first_line(score))
    return equation.group().rstrip(".") if equation else f"score(q, k) = {_called(score)}(q, k)"


def _called(score: Score) -> str:
    """Return the name of a score; for a user's own function, the name of the function or of its class."""
    function = getattr(score, "function", score)
    name = getattr(function, "__name__", type(function).__name__)
    return "f" if name == "<lambda>" else name


def vectors(name: str, equation: str, meaning: str, axes: str, values: Tensor, rows: Sequence[str]) -> WalkStep:
    """Build a step whose rows are vectors, so that its columns are features."""
    return WalkStep(name, equation, meaning, axes, values, tuple(rows), features(values.shape[-1]))


def formula_steps(
    call: Call,
    tensors: Mapping[str, Tensor],
    query: Tensor,
    key: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    head: int = 0,
) -> list[WalkStep]:
    """Explain the intermediate results of `attent.attention.reference.steps`.

    Args:
        call: the call.
        tensors: the intermediate results by name, in order.
        query: (B, H, Tq, Dq).
        key: (B, H, Tk, Dk).
        rows: a label for each query.
        columns: a label for each key.
        head: the head of the examples, from 0.
    """
    steps: list[WalkStep] = []
    textbook = TEXTBOOK if "products" in tensors and "gate" not in tensors else {}
    for tensor_name, values in tensors.items():
        if tensor_name == "masked" and not torch.isneginf(values).any():
            continue  # the mask hides nothing
        axes, row_labels, column_labels = _axes(tensor_name, values, rows, columns)
        name = textbook.get(tensor_name, tensor_name)
        equation, meaning = _text(call, name, steps[-1].name if steps else "", set(tensors))
        step = WalkStep(name, equation, meaning, axes, values, tuple(row_labels), tuple(column_labels))
        if equation == PRODUCT:
            step = replace(step, example=_product(step, query, key, head))
        elif name == "output":
            step = replace(step, example=_mixture(steps[-1], head))
        steps.append(step)
    return steps


def _axes(
    name: str, values: Tensor, rows: Sequence[str], columns: Sequence[str]
) -> tuple[str, Sequence[str], Sequence[str]]:
    """Return the letters of the axes, and the labels of rows and columns."""
    vector_axes = {
        "query_half": ("(B, H, Tq, hidden)", rows),
        "key_half": ("(B, H, Tk, hidden)", columns),
        "hidden": ("(B, H, Tq, Tk, hidden)", columns),
        "pairs": ("(B, H, Tq, Tk, Dq + Dk)", columns),
        "unit_query": ("(B, H, Tq, Dk)", rows),
        "unit_key": ("(B, H, Tk, Dk)", columns),
        "difference": ("(B, H, Tq, Tk, Dk)", columns),
        "output": ("(B, H, Tq, Dv)", rows),
    }
    if name not in vector_axes and values.shape[-2:] == (len(rows), len(columns)):
        return "(B, H, Tq, Tk)", rows, columns
    # a step of a user's own score, of which only the numbers are known
    numbers = tuple(map(str, range(values.shape[-2])))
    unknown = f"({', '.join('·' * values.dim())})", rows if len(rows) == len(numbers) else numbers
    return (*vector_axes.get(name, unknown), features(values.shape[-1]))


def _text(call: Call, name: str, before: str, names: set[str]) -> tuple[str, str]:
    """Return a step's equation and meaning."""
    match name:
        case "scores":
            return _score(call, names), "How well each key (column) fits each query (row)."
        case "scaled":
            width, scale = call.query_width, call.score.scale(call.query_width)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
            is_usual = abs(scale - width**-0.5) < 1e-9
            equation = f"scaled = scores / √Dk = scores / √{width}" if is_usual else f"scaled = scores · {scale:.4g}"
            return (
                equation,
                "The same, kept at one size however wide the vectors are; large scores would let one key take it all.",
            )
        case "capped":
            return f"capped = {call.soft_cap:g} · tanh({before} / {call.soft_cap:g})", "No score grows beyond the cap."
        case "hidden" if "pairs" in names:
            return "hidden[i, j] = tanh(W·pairs[i, j])", "What a layer makes of the pair."
        case "inner" if isinstance(inner := getattr(call.score, "inner", None), Score):
            return (
                f"inner[i, j] = {equation_of(inner).partition(' = ')[2]}",
                "How well they would fit if the gate were open.",
            )
        case "biased" if call.bias is None and call.position is not None:
            equation = f"biased[i, j] = {before}[i, j] + {name_of(call.position)}(i, j)"
            return equation, re.sub(r"\s+", " ", first_line(call.position))
        case "weights" if before == "normalised":
            equation = f"weights[i, j] = normalised[i, j] · {name_of(call.weighting)}(i, j)"
            return equation, "More for some keys than for others; no row need sum to 1."
        case "weights" | "normalised":
            return _weights(call, name, before)
        case _:
            equation, meaning = TEXTS.get(
                name, (f"{name}, on the way to {equation_of(call.score)}", "A step of this score's own.")
            )
            return equation.replace("{before}", before), meaning


def _score(call: Call, names: set[str]) -> str:
    if "gate" in names:
        return "scores = gate ⊙ inner"
    if "products" in names or equation_of(call.score) == "score(q, k) = qᵀk":
        return PRODUCT
    if "hidden" in names:
        return "scores[i, j] = vᵀhidden[i, j]"
    if "cosines" in names:
        return f"scores = cosines / τ = cosines / {call.score.temperature:g}"  # pyright: ignore[reportAttributeAccessIssue]
    if "squared_distance" in names:
        return "scores[i, j] = −squared_distance[i, j] / 2"
    return f"scores[i, j] = score(Q[i], K[j]),  {equation_of(call.score)}"


def _weights(call: Call, name: str, before: str) -> tuple[str, str]:
    normalizer = name_of(call.normalizer)
    if call.normalizer.is_distribution:
        meaning = "How each query divides its attention: every row sums to 1."
    else:
        meaning = f"How much each query looks at each key; under {normalizer} a row need not sum to 1."
    if normalizer == "softmax":
        meaning = f"exp {before}[i, j] / Σⱼ exp {before}[i, j]. {meaning}"
    return f"{name} = {normalizer}({before})", meaning


def _product(step: WalkStep, query: Tensor, key: Tensor, head: int) -> str:
    """Write the score of the second query and the first key as a sum of products, if there are few features."""
    row = min(1, len(step.rows) - 1)
    if not 0 < query.shape[-1] <= MAX_EXAMPLE_TERMS or not step.columns:
        return ""
    factors = zip(query[0, head, row].tolist(), key[0, head, 0].tolist(), strict=True)
    terms = " + ".join(f"({left:.2f})({right:.2f})" for left, right in factors)
    pair = f"{visible(step.rows[row])}, {visible(step.columns[0])}"
    return f"scores[{pair}] = {terms} = {step.values[0, head, row, 0].item():.2f}{_in_head(step, head)}"


def _mixture(weights: WalkStep, head: int) -> str:
    """Write the first query's output as a sum, if there are few keys."""
    if not 0 < len(weights.columns) <= MAX_EXAMPLE_TERMS:
        return ""
    terms = " + ".join(
        f"{share:.2f}·V[{visible(label)}]"
        for label, share in zip(weights.columns, weights.values[0, head, 0].tolist(), strict=True)
    )
    return f"output[{visible(weights.rows[0])}] = {terms}{_in_head(weights, head)}"


def _in_head(step: WalkStep, head: int) -> str:
    return f" in head {head}" if step.values.shape[1] > 1 else ""
