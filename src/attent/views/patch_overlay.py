"""The attention of a classifier's CLS vector to the patches of a picture, drawn over it with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.rollout import rollout
from attent.errors import ArgumentError, ShapeError
from attent.views.panel import Panel
from attent.views.picture import add_color_bar, check_format, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches of one picture.
SIDE = 1.7
PICTURES_PER_ROW = 4
COLOR = (1.0, 0.35, 0.0)
# What black and white are brought to beneath weights, as shares of the brightness: orange is dim over black.
GREYS = (0.35, 0.8)
READING = "how the vector in front looks at the patches, in per cent of all that it looks at; the rest is on itself"


def cls_weights(maps: Sequence[AttentionMap]) -> dict[str, Tensor]:
    """Return the weights of the CLS vector on all other positions, by name, (T,).

    By each head of the last layer, their mean, and rollout. Its weight on itself is left out, and the others are not
    normalized again.

    Args:
        maps: the self-attention of each layer for one example, the first layer first, (1, H, 1 + T, 1 + T).

    Raises:
        ArgumentError: there is no map.
        ShapeError: the maps are of several examples.
    """
    if not maps:
        raise ArgumentError("there is no map to draw")
    if maps[-1].shape[0] != 1:
        raise ShapeError(f"maps must be of one example, got {maps[-1].shape[0]}")
    heads = maps[-1][0, :, 0, 1:].detach().float().cpu()  # (H, T)
    by_head = {f"head {number}": weights for number, weights in enumerate(heads)}
    return by_head | {
        f"mean of {len(heads)} heads": heads.mean(0),
        "rolled out": rollout(maps, [0])[0, 0, 1:].float().cpu(),
    }


def cls_panel(maps: Sequence[AttentionMap], labels: Sequence[str] | None = None, title: str = "") -> Panel:
    """Build a heat map of `cls_weights`, a row for each of its names and a column for each position.

    Args:
        maps: see `cls_weights`.
        labels: of the positions; their numbers unless given.
        title: of the panel.

    Raises:
        ShapeError: there are not as many labels as positions.
    """
    weights = cls_weights(maps)
    dense = torch.stack([*weights.values()])
    columns = tuple(map(str, range(dense.shape[1])) if labels is None else labels)
    return Panel(
        dense,
        tuple(weights),
        columns,
        title,
        "how the vector in front looks at each place, in the last layer and through all",
    )


def draw_overlay(
    pixels: np.ndarray, grid: tuple[int, int], maps: Sequence[AttentionMap], path: Path | str, title: str = ""
) -> None:
    """Draw a picture, and over it the weights of the CLS vector on each patch, into a file.

    Args:
        pixels: the picture (H, W, C), bytes or floats from 0 to 1.
        grid: the number of patches from top to bottom and from left to right.
        maps: see `cls_weights`.
        path: the file, whose ending decides between PNG and SVG.
        title: of the figure.

    Raises:
        ArgumentError: the ending is neither, there is no map, or the file cannot be written.
        AttentError: matplotlib is not installed.
        ShapeError: the maps are not of as many patches.
    """
    check_format(path)
    save(overlay_figure(pixels, grid, cls_weights(maps), title), path)


def overlay_figure(pixels: np.ndarray, grid: tuple[int, int], weights: Mapping[str, Tensor], title: str = "") -> Figure:
    """Return the figure that `draw_overlay` saves; a notebook shows it.

    Args:
        pixels: see `draw_overlay`.
        grid: see `draw_overlay`.
        weights: of each patch, by name, (T,).
        title: of the figure.

    Raises:
        AttentError: matplotlib is not installed.
        ShapeError: the weights are not of as many patches.
    """
    rows = math.ceil((1 + len(weights)) / PICTURES_PER_ROW)
    drawing = new_figure(PICTURES_PER_ROW * SIDE, rows * (SIDE + 0.2) + 0.3)
    from matplotlib.colors import LinearSegmentedColormap

    if wrong := [len(values) for values in weights.values() if len(values) != math.prod(grid)]:
        raise ShapeError(f"there are {grid[0]} x {grid[1]} patches, got weights of {wrong[0]}")
    axes = drawing.subplots(rows, PICTURES_PER_ROW, squeeze=False).flatten()
    for area in axes:
        area.set_axis_off()
    _draw(axes[0], pixels, "picture")
    top = max((float(values.max()) for values in weights.values()), default=1.0)
    top_pixel, (black, white) = 255 if pixels.dtype == np.uint8 else 1, GREYS
    pale = (black * top_pixel + pixels * (white - black)).astype(pixels.dtype)
    # transparent where the weight is small
    colors, image = LinearSegmentedColormap.from_list("overlay", [(*COLOR, 0.0), (*COLOR, 0.9)]), None
    height, width = pixels.shape[:2]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    for area, (name, values) in zip(axes[1:], weights.items(), strict=False):
        _draw(area, pale, f"{name}: {float(values.sum()):.0%}")
        image = area.imshow(
            values.reshape(grid).numpy(), extent=extent, cmap=colors, vmin=0, vmax=top, interpolation="nearest"
        )
    if image is not None:
        add_color_bar(drawing, image, list(axes))
    drawing.suptitle("\n".join(filter(None, (title, READING))), fontsize=8, x=0.01, horizontalalignment="left")
    return drawing


def _draw(axes: Axes, pixels: np.ndarray, title: str) -> None:
    values = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    axes.imshow(values, cmap="gray", vmin=0, vmax=255 if pixels.dtype == np.uint8 else 1, interpolation="nearest")
    axes.set_title(title, fontsize=7, loc="left")
