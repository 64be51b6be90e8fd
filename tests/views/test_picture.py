from __future__ import annotations

import builtins
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from attent.attention.attend import attend
from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.attention.maps.rollout import rollout
from attent.errors import ArgumentError, AttentError, ShapeError
from attent.views.build_scene import build_scene, patch_names
from attent.views.palette import color, palette
from attent.views.panel import head_panels, panel
from attent.views.picture import (
    cls_panel,
    cls_weights,
    draw_overlay,
    draw_scene,
    drawable,
    figure,
    fonts,
    overlay_figure,
    picture,
)
from attent.views.scene import Picture


def make_maps(batch: int = 1) -> list[AttentionMap]:
    """Two layers of three heads over a vector in front and six patches."""
    return [attend(*torch.randn(3, batch, 3, 7, 5), return_map=True)[1] for _ in range(2)]


def test_what_the_vector_in_front_looks_at() -> None:
    maps = make_maps()
    weights = cls_weights(maps)
    assert [*weights] == ["head 0", "head 1", "head 2", "mean of 3 heads", "rolled out"]
    torch.testing.assert_close(weights["head 1"], maps[-1].dense()[0, 1, 0, 1:])
    torch.testing.assert_close(weights["mean of 3 heads"], maps[-1].dense()[0, :, 0, 1:].mean(0))
    torch.testing.assert_close(weights["rolled out"], rollout(maps, [0])[0, 0, 1:])
    panel = cls_panel(maps, [*"abcdef"], "title")
    assert panel.weights.shape == (5, 6)
    assert (panel.rows[0], panel.columns, panel.title) == ("head 0", tuple("abcdef"), "title")
    assert cls_panel(maps).columns == tuple("012345")


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pixels = np.full((4, 6, 3), 200, np.uint8)
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    draw_overlay(pixels, (2, 3), make_maps(), tmp_path / "new" / "a.png", "title")
    assert (tmp_path / "new" / "a.png").read_bytes().startswith(b"\x89PNG")
    drawn = overlay_figure(pixels, (2, 3), cls_weights(make_maps()), "title")
    displayed = [axes for axes in drawn.axes if axes.get_images()]
    titles = [axes.get_title(loc="left").split(":")[0] for axes in displayed]
    assert titles == ["picture", "head 0", "head 1", "head 2", "mean of 3 heads", "rolled out"]
    over = displayed[1].get_images()[1]
    assert over.get_array().shape == (2, 3)
    assert over.get_extent() == [-0.5, 5.5, 3.5, -0.5]


@pytest.mark.parametrize(
    "ground", [np.zeros((4, 6, 1), np.float32), np.ones((4, 6, 1), np.float32), np.full((4, 6, 3), 255, np.uint8)]
)
def test_weights_are_seen_over_black_and_white(ground: np.ndarray) -> None:
    agg = pytest.importorskip("matplotlib.backends.backend_agg", reason="matplotlib is not installed")
    drawn = overlay_figure(ground, (2, 3), {"head 0": torch.tensor([1.0, 0.5, 1 / 6, 0.0, 0.0, 0.0])})
    original, beneath = (drawn.axes[panel].get_images()[0].get_array() for panel in (0, 1))
    assert (original == (ground[..., 0] if ground.shape[-1] == 1 else ground)).all()
    assert (beneath == original).all()
    canvas = agg.FigureCanvasAgg(drawn)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    box = drawn.axes[1].get_window_extent()
    y, step = int(pixels.shape[0] - box.y1 + box.height / 4), box.width / 3
    strong, half, uniform = (pixels[y, int(box.x0 + step * (column + 0.5))] for column in range(3))
    assert set(uniform) == {255 if ground.any() else 0}, "nothing covers the picture where the weight is uniform"
    # a weight of 1 is 60 % opaque, and 3 times uniform two fifths of that
    over = np.array([int(palette()["ramp"][3][place : place + 2], 16) for place in (1, 3, 5)])
    for seen, opacity in ((strong, 0.6), (half, 0.24)):
        np.testing.assert_allclose(seen, uniform + opacity * (over - uniform), atol=2)
    assert drawn.axes[-1].get_ylabel() == "× uniform"
    assert beneath.dtype == original.dtype


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    pixels = np.zeros((4, 6, 1), np.float32)
    with pytest.raises(ArgumentError, match=r"must end in \.png or \.svg"):
        draw_overlay(pixels, (2, 3), make_maps(), tmp_path / "a.jpg")
    with pytest.raises(ArgumentError, match="no map to draw"):
        cls_weights([])
    with pytest.raises(ShapeError, match="of one example, got 2"):
        cls_weights(make_maps(batch=2))
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    with pytest.raises(ShapeError, match="there are 3 x 3 patches, got weights of 6"):
        draw_overlay(pixels, (3, 3), make_maps(), tmp_path / "a.png")


to_rgba = pytest.importorskip("matplotlib.colors", reason="pictures need matplotlib").to_rgba
LABELS = ["fr", " ", "α", "я", "سنة", "日", "क", "</s>"]
PANEL = panel(torch.eye(8), LABELS, LABELS, title="layer", reading="row t emits target[t]")


def test_a_png_is_a_picture_of_some_size(tmp_path: Path) -> None:
    from matplotlib.image import imread

    file = tmp_path / "new" / "map.png"
    picture(PANEL, file)
    assert file.read_bytes().startswith(b"\x89PNG")
    pixels = imread(file)
    assert pixels.shape[0] > 150
    assert pixels.shape[1] > 150
    assert pixels.std() > 0.05
    picture(PANEL, tmp_path / "map.svg")
    assert ElementTree.parse(tmp_path / "map.svg").getroot().tag.endswith("svg")


def test_labels_title_and_range() -> None:
    axes, bar = figure(PANEL).axes
    assert axes.get_title(loc="left") == "layer\nrow t emits target[t]"
    assert axes.get_xlabel() == "␣ space"
    assert [text.get_text() for text in axes.get_yticklabels()][:4] == ["fr", "␣", "α", "я"]
    assert axes.get_images()[0].get_clim() == (0.0, 1.0)
    assert bar.get_ylabel() == "weight"
    # weights beyond the usual range widen it
    assert figure(panel(torch.tensor([[-2.0, 3.0]]), "a", "bc")).axes[0].get_images()[0].get_clim() == (-2.0, 3.0)
    drawn = figure(head_panels(torch.rand(3, 2, 5).softmax(-1), "ab", "vwxyz"))
    assert [axes.get_title(loc="left") for axes in drawn.axes if axes.get_images()] == ["head 0", "head 1", "head 2"]


def test_maps_of_many_keys_count_multiples_of_uniform() -> None:
    weights = torch.full((2, 40), 1 / 40)
    weights[1] = torch.eye(40)[3]
    axes, bar = figure(panel(weights, "ab", [*map(str, range(40))])).axes
    (image,) = axes.get_images()
    assert (image.get_clim(), bar.get_ylabel()) == ((1.0, 8.0), "× uniform")
    colors = image.to_rgba(image.get_array())
    paper, full = (to_rgba(palette()["ramp"][place]) for place in (0, -1))
    np.testing.assert_allclose(colors[0], [paper] * 40, atol=0.01)
    np.testing.assert_allclose(colors[1, 3], full)
    assert full == to_rgba(color("weight"))
    # up to 32 keys, and numbers that are not weights, have a scale of their own
    for values in (torch.eye(32), 3 * weights):
        axes, bar = figure(panel(values, [*map(str, range(len(values)))], [*map(str, range(values.shape[1]))])).axes
        assert bar.get_ylabel() == "weight"
        assert axes.get_images()[0].get_clim() == (0.0, max(1.0, float(values.max())))


def test_a_character_that_no_font_has_is_written_as_its_code_point() -> None:
    assert drawable("a") == "a"
    # noncharacters will never have a glyph; a Cuneiform sign hardly ever has
    assert drawable("\U00012345") in ("12345", "\U00012345")
    assert fonts("aя")[0] == "DejaVu Sans"


@pytest.mark.slow
def test_nothing_global_is_touched() -> None:
    # asking for the backend would import pyplot
    code = (
        "import torch, matplotlib, sys; from attent.views.panel import panel; from attent.views.picture import figure;"
        "settings = lambda: {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != 'backend'};"
        "before = settings(); figure(panel(torch.eye(2), 'ab', 'ab'));"
        "assert 'matplotlib.pyplot' not in sys.modules; assert settings() == before"
    )
    folder = Path(__file__).parents[2] / "src"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr


def test_what_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"must end in \.png or \.svg"):
        picture(PANEL, tmp_path / "map.jpg")
    with pytest.raises(ArgumentError, match="no map to draw"):
        picture({}, tmp_path / "map.png")
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="cannot be written"):
        picture(PANEL, tmp_path / "file" / "map.png")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(AttentError, match=r"pip install '\.\[plot\]'"):
        picture(PANEL, tmp_path / "map.png")


def test_words_are_drawn_over_the_patches_they_look_at(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]])
    over = Picture(np.zeros((4, 4, 1), np.uint8), (2, 2), "source", before=0)
    maps = {"decoder.cross_attention": LabelledMap(weights, ("seven", " left"), (*patch_names(over),))}  # pyright: ignore
    scene = build_scene(maps, title="a canvas", picture=over)
    draw_scene(
        scene, panel(weights, ("seven", " left"), patch_names(over), reading="rows are words"), tmp_path / "a.svg"
    )
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    for text in ("1. seven: 100%", "2. left: 100%", "a canvas", "rows are words"):
        assert f"<!-- {text}" in drawn or text in drawn
    assert "1,1 -->" not in drawn
    # without a picture, or if the rows are patches, the panel is drawn
    square = panel(torch.eye(4), patch_names(over), patch_names(over))
    for drawing, panels in ((scene, square), (replace(scene, picture=None), square), (scene, {"head 0": square})):
        draw_scene(drawing, panels, tmp_path / "b.svg")
        assert "1,1 -->" in (tmp_path / "b.svg").read_text(encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"must end in \.png or \.svg"):
        draw_scene(scene, panel(weights, "ab", patch_names(over)), tmp_path / "a.jpg")
