from __future__ import annotations

import pytest
import torch

from attent.attention import attend, prepare
from attent.attention.masks import Causal


def visible_key_counts(queries: int, keys: int, **arguments) -> list[list[int]]:
    """How many keys each query of each sequence sees, and that they are the first ones."""
    call = prepare(
        torch.zeros(2, queries, 3), torch.zeros(2, keys, 3), torch.zeros(2, keys, 3), mask="causal", **arguments
    ).call
    allowed = call.allowed(call.pairs()).expand(2, 1, queries, keys)[:, 0]
    counts = allowed.sum(-1)
    assert torch.equal(allowed, torch.arange(keys) < counts[..., None])
    return counts.tolist()


@pytest.mark.parametrize(
    ("queries", "keys", "arguments", "expected"),
    [
        (3, 3, {}, [[1, 2, 3], [1, 2, 3]]),
        (3, 5, {}, [[3, 4, 5], [3, 4, 5]]),
        (5, 3, {}, [[0, 0, 1, 2, 3], [0, 0, 1, 2, 3]]),
        (1, 7, {}, [[7], [7]]),
        (3, 5, {"query_start": 0}, [[1, 2, 3], [1, 2, 3]]),
        (3, 5, {"query_start": 4}, [[5, 5, 5], [5, 5, 5]]),
        (3, 5, {"query_start": torch.tensor([0, 2])}, [[1, 2, 3], [3, 4, 5]]),
        (2, 5, {"lengths": torch.tensor([5, 3])}, [[4, 5], [2, 3]]),
        (3, 3, {"lengths": torch.tensor([3, 2]), "query_start": 0}, [[1, 2, 3], [1, 2, 2]]),
    ],
)
def test_a_query_sees_up_to_its_position(queries: int, keys: int, arguments: dict, expected: list[list[int]]) -> None:
    assert visible_key_counts(queries, keys, **arguments) == expected


def test_what_comes_later_does_not_matter() -> None:
    features = torch.randn(2, 7, 3)
    later = torch.cat((features[:, :4], torch.randn(2, 3, 3)), 1)
    first, second = attend(features, features, features, mask="causal"), attend(later, later, later, mask=Causal())
    torch.testing.assert_close(first[:, :4], second[:, :4])
    assert not torch.isclose(first[:, 4:], second[:, 4:]).any()


def test_the_picture() -> None:
    assert Causal().draw(3) == "■··\n■■·\n■■■"
