from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from attent.errors import ArgumentError
from attent.explorer.pooling import AdjustedWeights, adjust
from attent.explorer.tiles import HeadView
from attent.views.scene import Scene


@pytest.mark.parametrize("temperature", [0.05, 0.5, 3.0, 20.0])
def test_a_softmax_has_another_temperature(temperature: float) -> None:
    scores = torch.randn(2, 5, 300, dtype=torch.float64)
    torch.testing.assert_close(adjust(scores.softmax(-1), temperature, 0), (scores / temperature).softmax(-1))
    # of 32 bits too, where powers of small weights are below the smallest number
    sharp = adjust(torch.full((1, 10_000), 1e-4), 0.05, 0)
    torch.testing.assert_close(sharp, torch.full((1, 10_000), 1e-4))


def test_rows_that_see_nothing_stay_zeros() -> None:
    assert adjust(torch.zeros(3, 4), 0.3, 2).count_nonzero() == 0


def test_the_largest_of_a_row_are_kept_as_they_are() -> None:
    weights = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.25, 0.25, 0.25, 0.25]])
    adjusted = adjust(weights, 1, 2)
    assert adjusted[0].tolist() == [0, weights[0, 1].item(), 0, weights[0, 3].item()]
    assert adjusted[1].count_nonzero() == 2
    assert torch.equal(adjust(weights, 1, 7), weights)


def test_what_does_not_sum_to_one_has_no_temperature() -> None:
    with pytest.raises(ArgumentError, match="do not sum to 1"):
        AdjustedWeights("layer", torch.randn(2, 3, 3), 0, 0.5)


@pytest.mark.parametrize("head", [None, 1])
def test_every_number_of_a_map_is_adjusted(client: TestClient, scene: Scene, head: int | None) -> None:
    layer = scene.groups[0].layers[0]
    dense = adjust(layer.weights.dense()[0], 0.5, 3)
    expected = dense.mean(0) if head is None else dense[head]
    query_parameters = {
        "group": "cross",
        "layer": 0,
        "head": "mean" if head is None else head,
        "temperature": 0.5,
        "top": 3,
    }

    def numbers(part: str, **more: int) -> torch.Tensor:
        answer = client.get(f"/api/scenes/0/{part}", params={**query_parameters, **more})
        about = json.loads(answer.headers["x-attent-part"])
        return torch.from_numpy(np.frombuffer(answer.content, "<f4").reshape(about["height"], about["width"]).copy())

    torch.testing.assert_close(numbers("row", query=7)[0], expected[7])
    torch.testing.assert_close(numbers("column", key=3)[0], expected[:, 3])
    torch.testing.assert_close(numbers("tile", level=0, y=1, x=1), expected[256:, 256:])
    pooled = torch.nn.functional.avg_pool2d(expected[None], 8, ceil_mode=True)[0]
    torch.testing.assert_close(numbers("thumbnail"), pooled)
    # and those that are not adjusted stay what they were
    plain = HeadView("plain", layer, head).row(7).values[0]
    query_parameters |= {"temperature": 1, "top": 0}
    torch.testing.assert_close(numbers("row", query=7)[0], plain)
