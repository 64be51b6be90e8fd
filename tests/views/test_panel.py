from __future__ import annotations

import pytest
import torch

import attent
from attent.errors import ArgumentError, ShapeError, UnknownNameError
from attent.views.build_scene import build_scene
from attent.views.panel import choose, dense_heads, head_panels, head_panels_of, kind_of, panel, panel_of, panels

WEIGHTS = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]]])


def test_without_a_head_the_mean_over_heads_is_taken() -> None:
    mean, second = panel(WEIGHTS, "ab", "cd", title="layer"), panel(WEIGHTS, "ab", "cd", head=1)
    assert (mean.weights.tolist(), mean.title) == ([[0.5, 0.5], [0.5, 0.5]], "layer, mean over 2 heads")
    assert second.weights.tolist() == [[0.0, 1.0], [0.5, 0.5]]
    assert [item.title for item in head_panels(WEIGHTS, "ab", "cd").values()] == ["head 0", "head 1"]
    assert panel(WEIGHTS[0, 0], "ab", "cd", title="layer").title == "layer"
    query, key = torch.randn(1, 2, 3, 5), torch.randn(1, 2, 7, 5)
    _, weights = attent.attend(query, key, key, return_map=True)
    torch.testing.assert_close(dense_heads(weights), weights.dense()[0])
    with pytest.raises(ShapeError, match=r"\(rows, columns\) = \(3, 2\), got \(2, 2\)"):
        panel(WEIGHTS, "abc", "cd")
    with pytest.raises(ShapeError, match="got"):
        panel(torch.zeros(2, 1, 2, 2), "ab", "cd")
    with pytest.raises(ArgumentError, match="head must be from 0 to 1, got 2"):
        panel(WEIGHTS, "ab", "cd", head=2)


def test_the_last_layer_is_chosen_unless_another_is_named(translator) -> None:
    names = {
        "encoder.layers.0.self_attention": "encoder",
        "decoder.layers.3.cross_attention": "cross",
        "decoder.self_attention": "decoder",
    }
    assert [kind_of(name) for name in names] == list(names.values())
    maps = translator.map("abc", "xy")
    assert choose(maps)[0] == "decoder.layers.1.cross_attention"
    assert choose(maps, "decoder", 0)[0] == "decoder.layers.0.self_attention"
    with pytest.raises(ArgumentError, match="layer must be from 0 to 1, got 2"):
        choose(maps, "encoder", 2)
    with pytest.raises(UnknownNameError, match="did you mean 'cross'"):
        choose(maps, "crss")
    with pytest.raises(ArgumentError, match="no cross attention"):
        choose({"encoder.0": 1})


def test_a_models_panel_says_what_its_rows_are_about(translator) -> None:
    maps = translator.map("abc", "xy")
    cross = panel_of(maps)
    assert (cross.rows, cross.columns) == (("x", "y", "</s>"), ("a", "b", "c"))
    assert cross.reading.startswith("a row is about the token produced")
    assert panel_of(maps, "encoder").reading.startswith("a row is about the token itself")
    assert panel_of(maps, "decoder").reading.startswith("a row is about the token produced")
    assert list(head_panels_of(maps)) == ["head 0", "head 1", "head 2"]


def test_panels_of_a_scene(translator) -> None:
    maps = translator.map("abc", "xy")
    scene = build_scene(maps)
    ((name, displayed),) = panels(scene).items()
    assert name == "decoder.layers.1.cross_attention"
    assert displayed.title == f"{name}, mean over 3 heads"
    assert displayed.reading == "a row is about the token being written · columns: what is looked at"
    assert (displayed.rows, displayed.columns) == (("x", "y", "</s>"), ("a", "b", "c"))
    torch.testing.assert_close(displayed.weights, maps[name].weights.dense()[0].mean(0))
    (single,) = panels(scene, "encoder", 0, 2).values()
    assert single.title == "encoder.layers.0.self_attention, head 2"
    full = panels(scene, "encoder", 0, "all")
    assert list(full) == ["head 0", "head 1", "head 2"]
    torch.testing.assert_close(full["head 2"].weights, single.weights)
    with pytest.raises(ArgumentError, match="no group 'self'; there are cross, encoder, decoder"):
        panels(scene, "self")
    with pytest.raises(ArgumentError, match="layer must be from 0 to 1, got 2"):
        panels(scene, layer=2)
    with pytest.raises(ArgumentError, match="head must be from 0 to 2, got 3"):
        panels(scene, head=3)
