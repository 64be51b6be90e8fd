from __future__ import annotations

import pytest
import torch

from attent.views.labels import width
from attent.views.table import number, table


def test_numbers_stand_below_their_labels() -> None:
    lines = table(torch.tensor([[1.0, -2.5], [float("-inf"), 0.0]]), ["one", "日"], ["a", "b"], columns=40)
    assert lines == ["         a      b", "one   1.00  -2.50", " 日     -∞   0.00"]


def test_sums_have_a_column() -> None:
    lines = table(torch.tensor([[0.25, 0.75]]), ["x"], ["a", "b"], columns=40, sums=torch.tensor([1.0]))
    assert lines == ["      a     b  │   Σ", "x  0.25  0.75  │ 1.000"]


def test_what_is_left_out_is_said() -> None:
    lines = table(torch.zeros(20, 30), [str(row) for row in range(20)], [str(column) for column in range(30)], columns=40)
    assert lines[-1] == "(5 of 20 rows and 25 of 30 columns left out)"
    assert lines[0].split() == ["0", "1", "2", "3", "…", "29"]
    assert "⋮" in "".join(lines)
    assert max(map(width, lines[:-1])) <= 40


def test_blocks_keep_every_column() -> None:
    names = [f"k{column}" for column in range(12)]
    lines = table(torch.arange(12.0)[None], ["x"], names, columns=40, sums=torch.tensor([66.0]), blocks=3)
    assert " ".join(lines[0::3]).split() == [*names, "│", "Σ"]
    assert " ".join(lines[1::3]).replace("x", "").split() == [f"{value:.2f}" for value in range(12)] + ["│", "66.000"]


@pytest.mark.parametrize(("value", "text"), [(0.125, "0.12"), (-0.001, "0.00"), (-0.5, "-0.50"), (float("inf"), "∞")])
def test_a_number_that_rounds_to_zero_has_no_sign(value: float, text: str) -> None:
    assert number(value, 2) == text
