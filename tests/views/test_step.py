from __future__ import annotations

import re
from functools import partial

import pytest
import torch

from attent.attention import reference
from attent.attention.arguments import prepare
from attent.attention.base import Score
from attent.attention.choices import Own
from attent.attention.scores import SCORES, Dot, Gated
from attent.views.step import WalkStep, equation_of, features, formula_steps, vectors

ROWS, COLUMNS = ("r0", "r1"), ("c0", "c1", "c2")


def steps(**options: object) -> dict[str, WalkStep]:
    query, key, value = torch.randn(1, 1, 2, 5), torch.randn(1, 1, 3, 5), torch.randn(1, 1, 3, 7)
    prepared = prepare(query, key, value, **options)
    step_values = reference.steps(*prepared)
    return {step.name: step for step in formula_steps(prepared.call, step_values, query, key, ROWS, COLUMNS)}


@pytest.mark.parametrize("name", SCORES)
def test_every_score_has_an_equation(name: str) -> None:
    equation = equation_of(SCORES[name].for_widths(5, 5, 1))
    assert re.fullmatch(r"score\(q, kⱼ?\) = .+", equation)
    assert SCORES[name].__name__ not in equation, "the fallback for scores that say nothing"


def test_the_scaled_dot_product_is_told_as_textbooks_tell_it() -> None:
    step_values = steps()
    assert list(step_values) == ["scores", "scaled", "weights", "output"]
    assert step_values["scaled"].equation == "scaled = scores / √Dk = scores / √5"
    assert str(step_values["scores"]) == "scores = Q·Kᵀ   (B, H, Tq, Tk) = (1, 1, 2, 3)"
    torch.testing.assert_close(step_values["scaled"].values * 5**0.5, step_values["scores"].values)


def test_every_step_of_a_call_is_there() -> None:
    step_values = steps(score=Dot(), soft_cap=3.0, bias=torch.zeros(2, 3), mask="causal", dropout=0.5, seed=1)
    assert list(step_values) == ["scores", "capped", "biased", "masked", "weights", "dropped", "output"]
    assert step_values["output"].equation == "output = dropped·V"
    # a mask that hides nothing is no step
    assert "masked" not in steps(mask=torch.ones(2, 3, dtype=torch.bool))
    hidden = steps(score=SCORES["additive"].for_widths(5, 5, 1))["hidden"]
    assert (hidden.rows, hidden.columns) == (COLUMNS, features(5))
    assert features(3) == vectors("X", "X", "", "(T, E)", torch.zeros(2, 3), ROWS).columns == ("d1", "d2", "d3")


def test_only_weights_have_sums() -> None:
    step_values = steps()
    torch.testing.assert_close(step_values["weights"].sums, torch.ones(1, 1, 2))
    assert step_values["scores"].sums is None
    assert "every row sums to 1" in step_values["weights"].meaning
    assert "need not sum to 1" in steps(normalizer="sigmoid")["weights"].meaning


def test_an_example_is_the_number_that_stands_in_the_table() -> None:
    scores = steps(score="dot")["scores"]
    assert scores.example.startswith("scores[r1, c0] = (")
    assert scores.example.endswith(f" = {scores.values[0, 0, 1, 0]:.2f}")


def test_a_score_of_ones_own_is_shown_by_its_numbers() -> None:
    class Doubled(Score):
        """Twice the product."""

        def steps(self, query: torch.Tensor, key: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"twice": 2 * query, "scores": 2 * query @ key.mT}

    step_values = steps(score=Doubled())
    assert step_values["twice"].shape == (1, 1, 2, 5)
    assert step_values["scores"].equation == "scores[i, j] = score(Q[i], K[j]),  score(q, k) = Doubled(q, k)"


def distance(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return -torch.cdist(query, key)


def test_a_score_that_is_a_function_has_its_name() -> None:
    named = {"distance": distance, "partial": partial(distance), "f": lambda q, k: distance(q, k), "gated": Gated(5, 5)}
    for name, function in named.items():
        assert f"= {name}(" in equation_of(Own(function)).lower()
