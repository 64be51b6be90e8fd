from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError, ShapeError
from attent.nonparametric.matching import common_kind, numeric_values, read_entries, to_list


@pytest.mark.parametrize(
    ("value", "kind", "items"),
    [
        (3, "numbers", (3,)),
        ("ab", "strings", ("ab",)),
        (np.float32(0.5), "numbers", (0.5,)),
        (torch.tensor([[1.0, 2.0]]), "vectors", ((1.0, 2.0),)),
        ([(1, 2), [3, 4]], "vectors", ((1, 2), (3, 4))),
        ([True, ("a",)], "things", (True, ("a",))),
        ((letter for letter in "ab"), "strings", ("a", "b")),
        ([], None, ()),
    ],
)
def test_kinds(value: Any, kind: str | None, items: tuple[Any, ...]) -> None:
    result = read_entries("keys", value)
    assert (result.kind, result.items) == (kind, items)


def test_features() -> None:
    assert read_entries("keys", [1, 2.5]).features().tolist() == [[1.0], [2.5]]
    assert read_entries("keys", []).features().shape == (0, 1)
    with pytest.raises(ShapeError, match=r"^keys must be vectors of one width, got 2 numbers at first and 3 later$"):
        read_entries("keys", [(1, 2), (1, 2, 3)]).features()
    with pytest.raises(ArgumentError, match=r"got inf as keys\[1\]$"):
        read_entries("keys", [1, float("inf")]).features()


def test_kinds_agree() -> None:
    assert common_kind(read_entries("queries", []), read_entries("keys", "a")) == "strings"
    with pytest.raises(
        ArgumentError, match=r"^queries and keys must be of one kind, got numbers such as 1 and strings such as 'a'$"
    ):
        common_kind(read_entries("queries", 1), read_entries("keys", "a"))


@pytest.mark.parametrize("value", [None, [None], [{}], [([],)]])
def test_what_cannot_be_compared(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^keys must be numbers, vectors, strings or other hashable things, got"):
        read_entries("keys", value)


def test_values_that_have_a_mean() -> None:
    assert numeric_values([1, np.float64(2)]).tolist() == [1.0, 2.0]
    assert numeric_values([[1, 2], torch.tensor([3, 4])]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert numeric_values([]).shape == (0,)
    for values in (["a"], [True], [[1, 2], [3]], [["a"]], [None]):
        assert numeric_values(values) is None
    assert to_list("values", None) == [None]
