from __future__ import annotations

import numpy as np
import pytest
import torch

import attent
from attent.views.build_scene import build_scene
from attent.views.pages import layer_summary as module
from attent.views.pages.layer_summary import FIGURES, gathered
from attent.views.scene import LayerGroup


@pytest.fixture(autouse=True, params=[2**22, 17], ids=["at once", "row by row"])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", request.param)


def group(queries: int = 7, keys: int = 7, kind: str = "self") -> tuple[LayerGroup, torch.Tensor, attent.AttentionMap]:
    query, key = torch.randn(1, 3, queries, 5), torch.randn(1, 3, keys, 5)
    _, weights = attent.attend(query, key, key, return_map=True)
    name = "cross_attention" if kind == "cross" else "attention"
    return build_scene({name: weights}).groups[0], weights.dense()[0], weights


def test_whole_maps_are_the_maps() -> None:
    shown, dense, _ = group()
    np.testing.assert_allclose(gathered(shown, shown.layers[0], level=0, kept=0, whole=True).whole, dense.numpy(), rtol=1e-6)


def test_pooled_is_the_mean_of_squares_cut_off_at_the_edge() -> None:
    shown, dense, _ = group(queries=5, keys=7, kind="cross")
    pooled = gathered(shown, shown.layers[0], level=1, kept=1, whole=False).pooled
    assert pooled.shape == (3, 3, 4)
    np.testing.assert_allclose(pooled[:, 1, 2], dense[:, 2:4, 4:6].mean((1, 2)).numpy(), rtol=1e-5)
    np.testing.assert_allclose(pooled[:, 2, 3], dense[:, 4, 6].numpy(), rtol=1e-5)


def test_the_largest_of_each_row_and_column_and_of_the_mean() -> None:
    shown, dense, _ = group(queries=6, keys=5, kind="cross")
    found = gathered(shown, shown.layers[0], level=1, kept=2, whole=False)
    every = torch.cat((dense, dense.mean(0, keepdim=True)))
    np.testing.assert_allclose(found.rows[1], every.topk(2, -1).values.numpy(), rtol=1e-5)
    np.testing.assert_allclose(found.columns[1], every.mT.topk(2, -1).values.numpy(), rtol=1e-5)
    assert (found.rows[0] == every.topk(2, -1).indices.numpy()).all()
    assert (found.columns[0] == every.mT.topk(2, -1).indices.numpy()).all()


def test_figures_are_those_of_the_map() -> None:
    shown, dense, weights = group()
    figures = gathered(shown, shown.layers[0], level=0, kept=0, whole=True).figures
    of = dict(zip(FIGURES, figures.T, strict=True))
    np.testing.assert_allclose(of["entropy"], weights.entropy().mean(-1)[0].numpy(), rtol=1e-5)
    np.testing.assert_allclose(of["distance"], weights.distance().mean(-1)[0].numpy(), rtol=1e-5)
    np.testing.assert_allclose(of["first"], dense[:, :, 0].mean(-1).numpy(), rtol=1e-5)
    np.testing.assert_allclose(of["same"], dense.diagonal(dim1=1, dim2=2).mean(-1).numpy(), rtol=1e-5)
    np.testing.assert_allclose(of["previous"], dense.diagonal(-1, 1, 2).sum(-1).numpy() / 7, rtol=1e-5)


def test_a_row_that_sees_nothing_counts_in_no_mean() -> None:
    shown = build_scene(torch.tensor([[0.0, 0.0], [0.5, 0.5]])).groups[0]
    figures = gathered(shown, shown.layers[0], level=0, kept=0, whole=True).figures[0]
    np.testing.assert_allclose(figures, [np.log(2), 0.5, 0.5, 0.5, 0.5])


def test_figures_without_a_meaning_are_no_numbers() -> None:
    shown, _, _ = group(4, 6, kind="cross")
    figures = gathered(shown, shown.layers[0], level=0, kept=0, whole=True).figures
    assert np.isnan(figures).all(0).tolist() == [False, True, False, True, True]
    shown = build_scene(torch.tensor([[2.0, -1.0]])).groups[0]
    assert np.isnan(gathered(shown, shown.layers[0], level=0, kept=0, whole=True).figures).all()


def test_thumbnails_are_small_and_keep_the_mean() -> None:
    shown, dense, _ = group(101, 53, kind="cross")
    small = gathered(shown, shown.layers[0], level=2, kept=0, whole=False).thumbnails
    assert small.shape == (3, 48, 25)
    np.testing.assert_allclose(small[:, 0, 0], dense[:, :3, :3].mean((1, 2)).numpy(), rtol=1e-5)


def test_weights_that_are_no_numbers_are_zeros() -> None:
    shown = build_scene(torch.tensor([[torch.nan, torch.nan], [0.5, 0.5]])).groups[0]
    found = gathered(shown, shown.layers[0], level=0, kept=0, whole=True)
    assert found.nan
    assert found.whole.tolist() == [[[0.0, 0.0], [0.5, 0.5]]]
