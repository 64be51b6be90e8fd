from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attent.attention import AttentionMap, attend, rollout
from attent.attention.backends import bands
from attent.attention.maps import tiles as tile_stream
from attent.attention.maps.lazy_matrix import row_runs
from attent.errors import ArgumentError, ShapeError

dice = torch.Generator().manual_seed(1)


def layer(*shape: int, **arguments) -> AttentionMap:
    tensor = torch.randn(*shape, generator=dice)
    return attend(tensor, tensor, tensor, return_map=True, **arguments)[1]


def rolled(maps: list[AttentionMap]) -> Tensor:
    """½A + ½I of every layer multiplied, in float64."""
    whole = torch.eye(maps[0].shape[-1], dtype=torch.float64)
    for weights in maps:
        whole = (0.5 * weights.dense().double().mean(1) + 0.5 * torch.eye(weights.shape[-1])) @ whole
    return whole


@pytest.mark.parametrize("mask", [None, "causal"])
def test_it_is_the_product_of_the_layers(mask: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 70)
    monkeypatch.setattr(tile_stream, "MIN_ROWS", 2)
    maps = [layer(2, 3, 11, 5, mask=mask) for _ in range(4)]
    flow = rollout(maps, [10, 3, 3])
    assert flow.shape == (2, 3, 11)
    torch.testing.assert_close(flow.double(), rolled(maps)[:, [10, 3, 3]], rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(flow.sum(-1), torch.ones(2, 3))


def test_one_layer_by_hand_and_the_callers_axes_but_for_the_heads() -> None:
    weights = attend(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 1), return_map=True)[1]
    torch.testing.assert_close(rollout([weights], [0]), torch.tensor([[0.75, 0.25]]))
    assert rollout([layer(2, 7, 5)], [1]).shape == (2, 1, 7)
    assert rollout([layer(7, 5)], torch.tensor([1, 2])).shape == (2, 7)


def test_rows_that_are_not_reached_cost_nothing() -> None:
    observed: list[int] = []

    def recording(query: Tensor, key: Tensor) -> Tensor:
        observed.append(query.shape[-2])
        return query @ key.mT

    maps = [layer(2, 13, 5, score=recording, mask="causal") for _ in range(2)]
    observed.clear()
    rollout(maps, [3])
    # one query of the last layer, and those it sees of the one below
    assert observed == [1, 4]
    assert len(row_runs(maps[0].call)) == 1


def test_what_cannot_be_rolled_out_is_said() -> None:
    cross = attend(torch.randn(3, 5), torch.randn(7, 5), torch.randn(7, 5), return_map=True)[1]
    for maps, row, error, message in (
        ([], 0, ArgumentError, "rollout needs the map of at least one layer"),
        ([layer(2, 7, 5), layer(2, 11, 5)], 0, ShapeError, r"of one shape, got \(2, 7, 7\), \(2, 11, 11\)"),
        ([layer(7, 5)], 7, ArgumentError, r"rows must be from 0 to 6, got \[7\]"),
        ([layer(7, 5)], -1, ArgumentError, r"rows must be from 0 to 6, got \[-1\]"),
        (
            [layer(7, 5, normalizer="sigmoid")],
            0,
            ArgumentError,
            "requires a distribution, which Sigmoid weights",
        ),
        ([cross], 0, ShapeError, "rollout needs self-attention maps"),
    ):
        with pytest.raises(error, match=message):
            rollout(maps, [row])
