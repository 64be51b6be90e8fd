"""Where a model looked in a picture to tell what it shows, drawn with matplotlib."""

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
from attent.errors import ArgumentError, AttentError, ShapeError
from attent.views.panel import Panel
from attent.views.picture import DOTS_PER_INCH, FORMATS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INCHES = 1.7
ACROSS = 4
COLOUR = (1.0, 0.35, 0.0)
READING = "how the vector in front looks at the patches, in per cent of all that it looks at; the rest is on itself"


def weights_in_front(maps: Sequence[AttentionMap]) -> dict[str, Tensor]:
    """How the vector in front weighs each other place, by name, (T,): each head of the last layer, their mean, and rolled out.

    The weight on the vector itself is left out, and what is left is not made to sum to one again.

    Args:
        maps: each layer's self-attention while one example is read, the first layer first, (1, H, 1 + T, 1 + T).

    Raises:
        ArgumentError: there is no map.
        ShapeError: the maps are of several examples.
    """
    if not maps:
        raise ArgumentError("there is no map to draw")
    last = maps[-1]
    if last.shape[0] != 1:
        raise ShapeError(f"maps must be of one example, got {last.shape[0]}")
    heads = last[0, :, 0, 1:].detach().float().cpu()  # (H, T)
    each = {f"head {number}": weights for number, weights in enumerate(heads)}
    return each | {f"mean of {len(heads)} heads": heads.mean(0), "rolled out": rollout(maps, [0])[0, 0, 1:].float().cpu()}


def panel_in_front(maps: Sequence[AttentionMap], labels: Sequence[str] | None = None, title: str = "") -> Panel:
    """The same as a heat map, a row for each way of weighing and a column for each place.

    Args:
        maps: see `weights_in_front`.
        labels: of the places; their numbers unless given.
        title: above it.

    Raises:
        ShapeError: there are not as many labels as places.
    """
    weights = weights_in_front(maps)
    dense = torch.stack([*weights.values()])
    columns = tuple(map(str, range(dense.shape[1]))) if labels is None else tuple(labels)
    return Panel(dense, tuple(weights), columns, title, "how the vector in front looks at each place, in the last layer and through all")


def looked(pixels: np.ndarray, grid: tuple[int, int], maps: Sequence[AttentionMap], path: Path | str, title: str = "") -> None:
    """Draw a picture, and over it how much the vector in front looked at each of its patches.

    Args:
        pixels: the picture (H, W, C), bytes or floats from 0 to 1.
        grid: how many patches there are from top to bottom and from left to right.
        maps: see `weights_in_front`.
        path: where to; the ending decides between PNG and SVG.
        title: above all of it.

    Raises:
        ArgumentError: the ending is neither, there is no map, or the file cannot be written.
        AttentError: matplotlib is not installed.
        ShapeError: the maps are not of as many patches.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ArgumentError(f"a picture's name must end in {' or '.join(FORMATS)}, got {str(path)!r}")
    drawn = figure(pixels, grid, weights_in_front(maps), title)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn.savefig(path, dpi=DOTS_PER_INCH, bbox_inches="tight")
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written: {error.strerror or error}") from error


def figure(pixels: np.ndarray, grid: tuple[int, int], weights: Mapping[str, Tensor], title: str = "") -> Figure:
    """The figure that `looked` saves; a notebook shows it.

    Args:
        pixels: see `looked`.
        grid: see `looked`.
        weights: of each patch, by what they are called, (T,).
        title: above all of it.

    Raises:
        AttentError: matplotlib is not installed.
        ShapeError: the weights are not of as many patches.
    """
    try:
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.figure import Figure
    except ImportError as error:
        raise AttentError("pictures need matplotlib: pip install 'attent[plot]'") from error
    if wrong := [len(one) for one in weights.values() if len(one) != math.prod(grid)]:
        raise ShapeError(f"there are {grid[0]} x {grid[1]} patches, got weights of {wrong[0]}")
    down = math.ceil((1 + len(weights)) / ACROSS)
    whole = Figure(figsize=(ACROSS * INCHES, down * (INCHES + 0.2) + 0.3), layout="constrained")
    axes = whole.subplots(down, ACROSS, squeeze=False).flatten()
    for place in axes:
        place.set_axis_off()
    _draw(axes[0], pixels, "picture")
    top = max((float(one.max()) for one in weights.values()), default=1.0)
    # the picture shows through where little was looked at
    colours, image = LinearSegmentedColormap.from_list("looked", [(*COLOUR, 0.0), (*COLOUR, 0.9)]), None
    height, width = pixels.shape[:2]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    for place, (name, one) in zip(axes[1:], weights.items(), strict=False):
        _draw(place, pixels, f"{name}: {float(one.sum()):.0%}")
        image = place.imshow(one.reshape(grid).numpy(), extent=extent, cmap=colours, vmin=0, vmax=top, interpolation="nearest")
    if image is not None:
        bar = whole.colorbar(image, ax=list(axes), fraction=0.03, pad=0.02, aspect=30)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        bar.ax.tick_params(labelsize=7, length=2)
        bar.set_label("weight", fontsize=8)
    whole.suptitle("\n".join(filter(None, (title, READING))), fontsize=8, x=0.01, horizontalalignment="left")
    return whole


def _draw(axes: Axes, pixels: np.ndarray, title: str) -> None:
    shown = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    axes.imshow(shown, cmap="gray", vmin=0, vmax=255 if pixels.dtype == np.uint8 else 1, interpolation="nearest")
    axes.set_title(title, fontsize=7, loc="left")
