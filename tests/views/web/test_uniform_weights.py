"""What uniform weights look like on a page, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attent.views.build_scene import build_scene
from attent.views.pages.page import page
from attent.views.scene import Picture, Scene

pytestmark = pytest.mark.slow

# the color of a cell or a patch, whose center is a share of the height and of the width of a canvas
COLOR = """([where, down, across]) => { const canvas = document.querySelector(where);
    const [x, y] = [canvas.width * across, canvas.height * down];
        return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data].slice(0, 3); }"""
UNIFORM = torch.full((1, 12, 12), 1 / 12)


def opened(window: Any, folder: Path, scene: Scene) -> Any:
    view = window.open(page(scene).save(folder / "page.html"))
    view.wait_for_selector(".head canvas")
    view.locator(".map .readout").filter(has_text="→").wait_for()
    return view


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="colors run from 0 to the largest weight of the map itself"
)
def test_uniform_weights_are_not_as_dark_as_one_that_has_all(window: Any, tmp_path: Path) -> None:
    labels = [str(position) for position in range(12)]
    colors = []
    for weights in (UNIFORM, torch.eye(12)[None]):
        view = opened(window, tmp_path, build_scene({"self": weights}, labels))
        colors.append(np.array(view.evaluate(COLOR, [".head canvas", 0.96, 0.96]), np.int64))
    assert np.abs(colors[0] - colors[1]).max() > 60


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="entropy is said without the one of uniform weights")
def test_uniform_weights_are_said_to_be_nearly_uniform(window: Any, tmp_path: Path) -> None:
    view = opened(window, tmp_path, build_scene({"self": UNIFORM}, [str(position) for position in range(12)]))
    view.locator(".summary").filter(has_text="entropy").wait_for()
    assert "nearly uniform: entropy 2.485 of 2.485" in view.inner_text(".summary")


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the patch with the largest weight is covered, however small that is"
)
def test_a_picture_is_seen_beneath_uniform_weights(window: Any, tmp_path: Path) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:, 4:] = 255
    view = opened(
        window, tmp_path, build_scene({"self": torch.full((1, 5, 5), 0.2)}, picture=Picture(pixels, (2, 2), "tokens"))
    )
    view.click("text=how CLS looks")
    view.locator(".picture .readout").filter(has_text="CLS").wait_for()
    shares = (0.25, 0.75)
    black, white = (np.array(view.evaluate(COLOR, [".picture canvas", 0.25, share]), np.int64) for share in shares)
    assert np.abs(white - black).max() > 60
