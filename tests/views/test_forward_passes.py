from __future__ import annotations

import pytest
import torch

import attent
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError
from attent.views.forward_passes import chosen, passes


def weights(queries: int, keys: int, heads: int = 2) -> AttentionMap:
    query, key = torch.randn(1, heads, queries, 3), torch.randn(1, heads, keys, 3)
    return attent.attend(query, key, key, return_map=True)[1]


def named(*shapes: tuple[int, int]) -> dict[str, AttentionMap]:
    return {"a" if not number else f"a#{number + 1}": weights(*shape) for number, shape in enumerate(shapes)}


@pytest.mark.parametrize(
    ("calls", "joined"),
    [
        ([(3, 3), (1, 4), (1, 5)], [(5, 5)]),  # a cache grows
        ([(1, 7), (1, 7), (1, 7)], [(3, 7)]),  # another text is looked at, a step at a time
        ([(3, 3), (3, 3)], [(3, 3), (3, 3)]),  # read twice
        ([(3, 3), (4, 4)], [(3, 3), (4, 4)]),  # written without a cache
        ([(3, 3), (1, 4), (3, 3), (1, 4), (1, 5)], [(4, 4), (5, 5)]),  # written twice
    ],
)
def test_calls_that_continue_one_another_are_one(calls: list[tuple[int, int]], joined: list[tuple[int, int]]) -> None:
    assert [found.shape[2:] for found in passes(named(*calls))["a"]] == joined


def test_joined_rows_are_those_of_the_calls() -> None:
    maps = named((3, 3), (1, 4))
    (whole,) = passes(maps)["a"]
    torch.testing.assert_close(whole.dense()[:, :, :3, :3], maps["a"].dense())
    torch.testing.assert_close(whole.dense()[:, :, 3:], maps["a#2"].dense())


def test_a_sharp_in_a_name_is_no_call() -> None:
    assert list(passes({"a#2": weights(2, 2), "b": weights(2, 2)})) == ["a#2", "b"]


def test_one_pass_is_chosen() -> None:
    found = passes(named((3, 3), (4, 4)))
    assert chosen(found, -1)["a"].shape[2:] == (4, 4)
    assert chosen(found, 0)["a"].shape[2:] == (3, 3)
    with pytest.raises(ArgumentError, match="a ran 2 times, numbered from 0, got 2"):
        chosen(found, 2)
