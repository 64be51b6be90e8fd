from __future__ import annotations

import numpy as np
import pytest
import torch

import attent
from attent.attention.maps.statistics import HEAD_STATISTICS
from attent.views.build_scene import build_scene
from attent.views.pages import payload as module
from attent.views.pages.payload import summarize_layer
from attent.views.scene import LayerGroup


@pytest.fixture(autouse=True, params=[2**22, 17], ids=["at once", "row by row"])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_WEIGHTS", request.param)


def group(queries: int = 7, keys: int = 7, kind: str = "self") -> tuple[LayerGroup, torch.Tensor, attent.AttentionMap]:
    query, key = torch.randn(1, 3, queries, 5), torch.randn(1, 3, keys, 5)
    _, weights = attent.attend(query, key, key, return_map=True)
    name = "cross_attention" if kind == "cross" else "attention"
    return build_scene({name: weights}).groups[0], weights.dense()[0], weights


def test_whole_maps_are_the_maps() -> None:
    scene_group, dense, _ = group()
    weights = summarize_layer(scene_group, scene_group.layers[0], level=0, top=0).weights
    np.testing.assert_allclose(weights, dense.numpy(), rtol=1e-6)
    displayed = build_scene(torch.tensor([[torch.nan, torch.nan], [0.5, 0.5]])).groups[0]
    summary = summarize_layer(displayed, displayed.layers[0], level=0, top=0)
    assert summary.has_nan
    assert summary.weights.tolist() == [[[0.0, 0.0], [0.5, 0.5]]]


def test_pooled_is_the_mean_of_squares_cut_off_at_the_edge() -> None:
    scene_group, dense, _ = group(queries=5, keys=7, kind="cross")
    pooled = summarize_layer(scene_group, scene_group.layers[0], level=1, top=1).weights
    assert pooled.shape == (3, 3, 4)
    np.testing.assert_allclose(pooled[:, 1, 2], dense[:, 2:4, 4:6].mean((1, 2)).numpy(), rtol=1e-5)
    np.testing.assert_allclose(pooled[:, 2, 3], dense[:, 4, 6].numpy(), rtol=1e-5)


def test_the_largest_of_each_row_and_column_and_of_the_mean() -> None:
    scene_group, dense, _ = group(queries=6, keys=5, kind="cross")
    summary = summarize_layer(scene_group, scene_group.layers[0], level=1, top=2)
    full = torch.cat((dense, dense.mean(0, keepdim=True)))
    np.testing.assert_allclose(summary.rows[1], full.topk(2, -1).values.numpy(), rtol=1e-5)
    np.testing.assert_allclose(summary.columns[1], full.mT.topk(2, -1).values.numpy(), rtol=1e-5)
    assert (summary.rows[0] == full.topk(2, -1).indices.numpy()).all()
    assert (summary.columns[0] == full.mT.topk(2, -1).indices.numpy()).all()


def test_figures_are_those_of_the_map() -> None:
    scene_group, dense, weights = group()
    figures = summarize_layer(scene_group, scene_group.layers[0], level=0, top=0).statistics
    of = {name: [head[name] for head in figures] for name in HEAD_STATISTICS}
    np.testing.assert_allclose(of["entropy"], weights.entropy().mean(-1)[0].numpy(), rtol=1e-5)
    np.testing.assert_allclose(of["distance"], weights.distance().mean(-1)[0].numpy(), rtol=1e-5)
    np.testing.assert_allclose(of["first"], dense[:, :, 0].mean(-1).numpy(), rtol=1e-5)
    np.testing.assert_allclose(of["same"], dense.diagonal(dim1=1, dim2=2).mean(-1).numpy(), rtol=1e-5)
    np.testing.assert_allclose(of["previous"], dense.diagonal(-1, 1, 2).sum(-1).numpy() / 7, rtol=1e-5)
    # a row that sees nothing counts in no mean
    displayed = build_scene(torch.tensor([[0.0, 0.0], [0.5, 0.5]])).groups[0]
    head = summarize_layer(displayed, displayed.layers[0], level=0, top=0).statistics[0]
    np.testing.assert_allclose([*head.values()], [np.log(2), 0.5, 0.5, 0.5, 0.5])


def test_figures_without_a_meaning_are_no_numbers() -> None:
    scene_group, _, _ = group(4, 6, kind="cross")
    figures = summarize_layer(scene_group, scene_group.layers[0], level=0, top=0).statistics
    assert [[mean is None for mean in head.values()] for head in figures] == [[False, True, False, True, True]] * 3
    scene_group = build_scene(torch.tensor([[2.0, -1.0]])).groups[0]
    (figures,) = summarize_layer(scene_group, scene_group.layers[0], level=0, top=0).statistics
    assert figures == dict.fromkeys(HEAD_STATISTICS)


def test_thumbnails_are_small_and_keep_the_mean() -> None:
    scene_group, dense, _ = group(101, 53, kind="cross")
    small = summarize_layer(scene_group, scene_group.layers[0], level=2, top=0).thumbnails
    assert small.shape == (3, 48, 25)
    np.testing.assert_allclose(small[:, 0, 0], dense[:, :3, :3].mean((1, 2)).numpy(), rtol=1e-5)
