"""Axes of size 0, of which `torch.nn.functional.scaled_dot_product_attention` takes all.

Whoever serves returns what the formula defines. No sequence, head, query or value feature gives an empty context; no
key gives zeros; keys without features are all alike. Each has gradients of the inputs' shapes.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import attend, explain
from attent.attention.attend import IMPLEMENTATIONS
from attent.attention.positions import RelativeBias
from attent.attention.scores import SCORES
from attent.attention.weightings import GaussianWindow
from attent.errors import ImplementationError, ShapeError

SIZES = {"B": 2, "H": 4, "Tq": 5, "Tk": 7, "Dk": 6, "Dv": 3}
AXES = [("B",), ("H",), ("Tq",), ("Dk",), ("Dv",), ("H", "Tq")]
WEIGHTED = ("additive", "concat", "gated", "general", "location")
DROPOUT: dict[str, Any] = {"dropout": 0.3, "seed": 1}
# arguments of `attend` beside tensors and score, of (B, H, Tq, Tk)
ARGUMENTS: dict[str, Callable[[int, int, int, int], dict[str, Any]]] = {
    "nothing": lambda *_: {},
    "dropout": lambda *_: DROPOUT,
    "causal, dropout": lambda *_: {"mask": "causal"} | DROPOUT,
    "bias": lambda *shape: {"bias": torch.randn(shape)},
    "hiding bias, dropout": lambda *shape: (
        {"bias": torch.zeros(shape).masked_fill(torch.randn(shape) > 0, -torch.inf)} | DROPOUT
    ),
    "bias with a gradient": lambda *shape: {"bias": torch.randn(shape, requires_grad=True)},
    "lengths": lambda batch, heads, queries, keys: {"lengths": torch.full((batch,), keys // 2)},
    "table": lambda *shape: {"mask": torch.randn(shape) > 0},
    "alibi": lambda *_: {"position": "alibi"},
    "alibi, dropout": lambda *_: {"position": "alibi"} | DROPOUT,
    "rotary": lambda *_: {"position": "rotary"},
    "relative_bias": lambda batch, heads, *_: {"position": RelativeBias(heads, 4, 3)},
    "soft cap": lambda *_: {"soft_cap": 2.0},
    "weighting": lambda batch, heads, queries, keys: {"weighting": GaussianWindow(torch.rand(batch, queries), 1.3)},
    "sparsemax": lambda *_: {"normalizer": "sparsemax"},
    "sigmoid": lambda *_: {"normalizer": "sigmoid"},
}


# every argument without keys, and with two of the other axes empty in turn
CASES = [
    (name, zero)
    for number, name in enumerate(ARGUMENTS)
    for zero in (("Tk",), AXES[number % len(AXES)], AXES[(number + 3) % len(AXES)])
]


def scores_for(width: int, heads: int) -> list[Any]:
    """Every score, and a function; of width 0 those without a weight of that width."""
    scores = [score.for_widths(width, width, heads) for name, score in SCORES.items() if width or name not in WEIGHTED]
    return [*scores, lambda query, key: (query[..., :, None, :] * key[..., None, :, :]).sum(-1).tanh()]


def outcome(score: Any, tensors: list[Tensor], implementation: str, arguments: dict[str, Any]) -> list[Tensor]:
    """The context and the gradients of query, key and value; zeros where a score looks at none of their features."""
    context = attend(*tensors, score=score, implementation=implementation, **arguments)
    return [context, *torch.autograd.grad(context.sum(), tensors, materialize_grads=True)]


@pytest.mark.parametrize(("name", "zero"), CASES, ids=lambda part: part if isinstance(part, str) else "-".join(part))
def test_every_implementation_returns_what_the_formula_does(zero: tuple[str, ...], name: str) -> None:
    batch, heads, queries, keys, width, value_width = (0 if axis in zero else size for axis, size in SIZES.items())
    arguments = ARGUMENTS[name](batch, heads, queries, keys)
    shapes = (batch, heads, queries, width), (batch, heads, keys, width), (batch, heads, keys, value_width)
    served = set[str]()
    for score in scores_for(width, heads):
        tensors = [torch.randn(shape, requires_grad=True) for shape in shapes]
        expected = outcome(score, tensors, "reference", arguments)
        assert [part.shape for part in expected] == [(batch, heads, queries, value_width), *shapes]
        if not keys:
            assert all(part.count_nonzero() == 0 for part in expected)
        reasons = explain(*tensors, score=score, implementation="reference", **arguments).reasons
        for implementation in ("auto", *IMPLEMENTATIONS):
            try:
                actual = outcome(score, tensors, implementation, arguments)
            except ImplementationError:
                assert reasons[implementation] != "reference takes precedence"
                continue
            served.add(implementation)
            torch.testing.assert_close(actual, expected)
    assert served >= {"auto", "reference", "tiled"}


def test_query_heads_need_key_heads() -> None:
    with pytest.raises(ShapeError, match=r"^query heads must be a multiple of key heads, got 4 and 0$"):
        attend(torch.zeros(2, 4, 5, 6), torch.zeros(2, 0, 7, 6), torch.zeros(2, 0, 7, 3))
    # none share as many as there are
    assert attend(torch.zeros(2, 0, 5, 6), torch.zeros(2, 4, 7, 6), torch.zeros(2, 4, 7, 3)).shape == (2, 0, 5, 3)
