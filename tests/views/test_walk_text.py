from __future__ import annotations

import pytest

from attent.views.labels import width
from attent.views.walk import walk
from attent.views.walk_text import matrices


def test_every_step_is_named_with_equation_shape_and_words() -> None:
    text = walk().text(100)
    for line in ("scores = Q·Kᵀ   (B, H, Tq, Tk) = (1, 1, 6, 6)", "scaled = scores / √Dk = scores / √4", "weights = softmax(scaled)"):
        assert line in text
    assert text.count("   The    cat    sat     on    the    mat") == 2
    assert text.count("│ 1.000") == 6


def test_the_numbers_printed_are_those_of_the_steps() -> None:
    found = walk("a b")
    lines = found.text(100).splitlines()
    start = next(place for place, line in enumerate(lines) if line.endswith("│   Σ"))
    printed = [[float(cell) for cell in line.split()[1:3]] for line in lines[start + 1 : start + 3]]
    assert printed == [[round(value, 2) for value in row] for row in found.steps["weights"].values[0, 0].tolist()]


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("text", ["The cat sat on the mat", " ".join(f"word{n}" for n in range(30)), "نحن نحب 日本語 ไทย"])
def test_no_line_is_wider_than_the_terminal(columns: int, text: str) -> None:
    lines = walk(text, heads=2, mask="causal").text(columns).splitlines()[2:]
    assert max(map(width, lines)) <= columns


def test_each_head_has_its_matrix_or_the_one_asked_for() -> None:
    step = walk(heads=2).steps["weights"]
    assert [name for name, _, _ in matrices(step, None)] == ["head 0", "head 1"]
    ((name, matrix, sums),) = matrices(step, 1)
    assert (name, matrix.tolist()) == ("", step.values[0, 1].tolist())
    assert sums is not None


def test_a_vector_for_every_pair_shows_the_first_query() -> None:
    ((name, matrix, _),) = matrices(walk("a b c", score="additive").steps["hidden"], None)
    assert name == "of the first query; rows are the keys"
    assert matrix.shape == (3, 4)
