from __future__ import annotations

from pathlib import Path

import pytest
import torch

from attent.errors import ArgumentError
from attent.views.build_scene import build_scene
from attent.views.picture import picture
from attent.views.scene_panels import panels


def test_the_mean_over_heads_of_the_last_layer_unless_said_otherwise(translator) -> None:
    maps = translator.map("abc", "xy")
    scene = build_scene(maps)
    ((name, shown),) = panels(scene).items()
    assert name == "decoder.layers.1.cross_attention"
    assert shown.title == f"{name}, mean over 3 heads"
    assert shown.reading == "a row is about the token produced · columns: what is looked at"
    assert (shown.rows, shown.columns) == (("x", "y", "</s>"), ("a", "b", "c"))
    torch.testing.assert_close(shown.weights, maps[name].weights.dense()[0].mean(0))


def test_a_head_and_all_of_them(translator) -> None:
    scene = build_scene(translator.map("abc", "xy"))
    (one,) = panels(scene, "encoder", 0, 2).values()
    assert one.title == "encoder.layers.0.self_attention, head 2"
    every = panels(scene, "encoder", 0, "all")
    assert list(every) == ["head 0", "head 1", "head 2"]
    torch.testing.assert_close(every["head 2"].weights, one.weights)


@pytest.mark.parametrize("name", ["map.png", "map.svg"])
def test_panels_are_drawn(translator, tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    picture(panels(build_scene(translator.map("abc", "xy")), head="all"), tmp_path / name)
    assert (tmp_path / name).stat().st_size > 1000


def test_what_is_not_there(translator) -> None:
    scene = build_scene(translator.map("abc", "xy"))
    with pytest.raises(ArgumentError, match="no group 'self'; there are cross, encoder, decoder"):
        panels(scene, "self")
    with pytest.raises(ArgumentError, match="layer must be from 0 to 1, got 2"):
        panels(scene, layer=2)
    with pytest.raises(ArgumentError, match="head must be from 0 to 2, got 3"):
        panels(scene, head=3)
