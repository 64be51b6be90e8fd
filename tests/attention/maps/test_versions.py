from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import AttentionMap, attend
from attent.attention.masks import Causal, Padding, PerHead, Table
from attent.attention.positions import RelativeBias
from attent.attention.scores import Additive
from attent.errors import StaleMapError

dice = torch.Generator().manual_seed(1)
QUERY, KEY, VALUE = (torch.randn(2, 3, *shape, generator=dice) for shape in ((5, 7), (11, 7), (11, 2)))


def example() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors that a call depends on, by what an error calls them, and the arguments that hold them."""
    score, position = Additive(7, 7, 13), RelativeBias(3)
    bias, table, lengths, start = (
        torch.randn(5, 11),
        torch.ones(5, 11).bool(),
        torch.tensor([11, 7]),
        torch.tensor([6, 2]),
    )
    arguments = {
        "score": score,
        "position": position,
        "bias": bias,
        "mask": PerHead([Causal(), Table(table), Causal()]) & Padding(lengths),
        "query_start": start,
    }
    held = {"score's v": score.v, "position's table": position.table, "bias": bias, "mask": table, "query_start": start}
    return held, arguments


def test_a_change_of_anything_that_counts_is_noticed_and_of_nothing_else() -> None:
    held, arguments = example()
    for name, tensor in held.items():
        weights = attend(QUERY, KEY, VALUE, **arguments, return_map=True)[1]
        weights.dense()
        with torch.no_grad():
            tensor[0] = 0
        with pytest.raises(StaleMapError, match=f"^{name} was changed in place"):
            weights.dense()
    value = VALUE.clone()
    weights = attend(QUERY, KEY, value, return_map=True)[1]
    value.zero_()
    weights.dense()


def test_a_change_through_a_view_is_noticed() -> None:
    query = QUERY[0, 0].clone()
    weights = attend(query, KEY[0, 0], VALUE[0, 0], return_map=True)[1]
    query[2:].mul_(2)
    with pytest.raises(StaleMapError):
        weights[0]


def test_what_was_kept_shares_nothing_with_what_it_was_made_of() -> None:
    held, arguments = example()
    query, key = QUERY.clone().requires_grad_(), KEY.clone()
    weights = attend(query, key, VALUE, **arguments, return_map=True)[1]
    snapshot, before = weights.keep(), weights.dense()
    with torch.no_grad():
        for tensor in (query, key, *held.values()):
            tensor.zero_()
    assert torch.equal(snapshot.dense(), before.detach())
    assert not snapshot.dense().requires_grad
    assert torch.equal(snapshot.keep().dense(), before.detach())


def test_a_map_of_tensors_without_versions_still_serves() -> None:
    with torch.inference_mode():
        weights: AttentionMap = attend(QUERY.clone(), KEY.clone(), VALUE.clone(), return_map=True)[1]
        dense = weights.dense()
    torch.testing.assert_close(dense, attend(QUERY, KEY, VALUE, return_map=True)[1].dense())
