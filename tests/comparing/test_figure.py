from __future__ import annotations

from pathlib import Path

import pytest

from attent.comparing.figure import draw
from attent.comparing.results import Figure, Point, Series
from attent.errors import RunError

LINES = Figure("lines", "Lines", "x", "y", [Series("one", [Point(1.0, 2.0, 1.5, 2.5), Point(4.0, 8.0)])], log_x=True, log_y=True)
DOTS = Figure(
    "dots", "Dots", "score", "match", [Series("RNN", [Point("dot", 9.0, 8.0, 9.5)]), Series("T", [Point("general", 5.0)])], kind="dots"
)


@pytest.mark.parametrize("figure", [LINES, DOTS], ids=lambda figure: figure.kind)
def test_a_figure_becomes_a_picture(figure: Figure, tmp_path: Path) -> None:
    path = draw(figure, tmp_path / "picture.png")
    from matplotlib.image import imread

    image = imread(path)
    assert image.shape[0] > 300
    assert image.shape[1] > 600
    # something is drawn on the white
    assert (image[..., :3].min(-1) < 0.5).mean() > 0.001


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"picture.png"):
        draw(LINES, tmp_path / "no" / "picture.png")
