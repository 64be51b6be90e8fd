from __future__ import annotations

import pytest
import torch

from attent.views.labels import visible, width
from attent.views.render_walk import format_number, matrices, table, walk_page
from attent.views.walk import walk, walk_run


def test_every_step_is_named_and_printed_with_its_numbers() -> None:
    text = walk().text(100)
    for line in (
        "scores = Q·Kᵀ   (B, H, Tq, Tk) = (1, 1, 6, 6)",
        "scaled = scores / √Dk = scores / √4",
        "weights = softmax(scaled)",
    ):
        assert line in text
    assert text.count("   The    cat    sat     on    the    mat") == 2
    assert text.count("│ 1.000") == 6
    walkthrough = walk("a b")
    lines = walkthrough.text(100).splitlines()
    start = next(index for index, line in enumerate(lines) if line.endswith("│   Σ"))
    printed = [[float(cell) for cell in line.split()[1:3]] for line in lines[start + 1 : start + 3]]
    assert printed == [[round(value, 2) for value in row] for row in walkthrough.steps["weights"].values[0, 0].tolist()]


@pytest.mark.parametrize(
    ("columns", "text"),
    [(120, "The cat sat on the mat"), (60, " ".join(f"word{n}" for n in range(20))), (80, "نحن نحب 日本語 ไทย")],
)
def test_no_line_is_wider_than_the_terminal(columns: int, text: str) -> None:
    lines = walk(text, heads=2, mask="causal").text(columns).splitlines()[2:]
    assert max(map(width, lines)) <= columns


def test_each_head_has_its_matrix_or_the_one_asked_for() -> None:
    step = walk(heads=2).steps["weights"]
    assert [name for name, _, _ in matrices(step, None)] == ["head 0", "head 1"]
    ((name, matrix, sums),) = matrices(step, 1)
    assert (name, matrix.tolist()) == ("", step.values[0, 1].tolist())
    assert sums is not None
    ((name, matrix, _),) = matrices(walk("a b c", score="additive").steps["hidden"], None)
    assert name == "of the first query; rows are the keys"
    assert matrix.shape == (3, 4)


def test_numbers_stand_below_their_labels() -> None:
    numbers = [format_number(value, 2) for value in (0.125, -0.001, -0.5, float("inf"))]
    assert numbers == ["0.12", "0.00", "-0.50", "∞"]
    lines = table(torch.tensor([[1.0, -2.5], [float("-inf"), 0.0]]), ["one", "日"], ["a", "b"], width_limit=40)
    assert lines == ["         a      b", "one   1.00  -2.50", " 日     -∞   0.00"]
    lines = table(torch.tensor([[0.25, 0.75]]), ["x"], ["a", "b"], width_limit=40, sums=torch.tensor([1.0]))
    assert lines == ["      a     b  │   Σ", "x  0.25  0.75  │ 1.000"]
    lines = table(torch.zeros(20, 30), [*map(str, range(20))], [*map(str, range(30))], width_limit=40)
    assert lines[-1] == "(5 of 20 rows and 25 of 30 columns left out)"
    assert lines[0].split() == ["0", "1", "2", "3", "…", "29"]
    assert "⋮" in "".join(lines)
    assert max(map(width, lines[:-1])) <= 40
    names = [f"k{column}" for column in range(12)]
    lines = table(torch.arange(12.0)[None], ["x"], names, width_limit=40, sums=torch.tensor([66.0]), blocks=3)
    assert " ".join(lines[0::3]).split() == [*names, "│", "Σ"]
    assert " ".join(lines[1::3]).replace("x", "").split() == [f"{value:.2f}" for value in range(12)] + ["│", "66.000"]


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    walkthrough = walk("<script>alert(1)</script> & b")
    html = walkthrough._repr_html_()
    assert html == walk_page(walkthrough)._repr_html_()
    assert html.startswith("<iframe srcdoc=") and "<script" not in html


def test_words_stand_before_their_numbers(translator) -> None:
    walkthrough = walk_run(translator, "abc", kind="cross", whole=True)
    step = walkthrough.steps["probabilities"]
    assert f"{visible(step.cells[0][0])} {step.values[0, 0, 0]:.2f}" in walkthrough.text(120)
