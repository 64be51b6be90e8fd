from pathlib import Path

import numpy as np
import pytest
import torch

from attent.attention.attend import attend
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.rollout import rollout
from attent.errors import ArgumentError, ShapeError
from attent.views.picture import cls_panel, cls_weights, draw_overlay, overlay_figure


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
    drawn = overlay_figure(ground, (2, 3), {"head 0": torch.tensor([1.0, 0.2, 0.0, 0.0, 0.0, 0.0])})
    original, beneath = (drawn.axes[panel].get_images()[0].get_array() for panel in (0, 1))
    assert (original == (ground[..., 0] if ground.shape[-1] == 1 else ground)).all()
    canvas = agg.FigureCanvasAgg(drawn)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    box = drawn.axes[1].get_window_extent()
    y, step = int(pixels.shape[0] - box.y1 + box.height / 4), box.width / 3
    strong, fifth, none = (pixels[y, int(box.x0 + step * (column + 0.5))] for column in range(3))
    assert 60 < none.max() < 225
    assert np.abs(strong - none).max() > 80
    assert np.abs(fifth - none).max() > 15
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
