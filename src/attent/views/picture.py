"""Heat maps as PNG or SVG pictures, drawn with matplotlib, and overlays of attention on a picture's patches.

matplotlib is an optional extra. Its global state (pyplot, the backend, the settings) is neither read nor changed.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.rollout import rollout
from attent.errors import ArgumentError, ShapeError, needs, refuse
from attent.views.labels import legend, visible
from attent.views.palette import color, color_map, palette
from attent.views.panel import Panel
from attent.views.scene import Scene

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
# Sizes of a cell, of a letter of a label, and of the margins of a map, in inches.
CELL, LETTER, MARGIN = 0.22, 0.085, 0.45
# Minimum and maximum side of a map, in inches.
MIN_SIDE, MAX_SIDE = 1.6, 24.0
MAX_LABELS = 200
DOTS_PER_INCH = 150
# Keys up to which the scale of colors is 0 to 1; with more, it counts multiples of uniform, and is full at this one.
# Rows of weights, which may be of half precision, sum to 1 up to the tolerance.
FEW, FULL, MULTIPLES, TOLERANCE = 32, 8, "× uniform", 0.01
DEFAULT_FONT = "DejaVu Sans"
# A font with placeholder glyphs for every character, which show only the name of its script.
PLACEHOLDER_FONT = "Last Resort"


def picture(panels: Panel | Mapping[str, Panel], path: Path | str) -> None:
    """Draw one map, or several in a grid, and save the picture to a file.

    Dark colors are large weights: from 0 to 1, or, with more than 32 keys, from uniform to 8 times uniform, which the
    color bar says. The colors are safe for color-blind readers and for printing in gray. A character
    that no font on this machine has is written as its code point.

    Args:
        panels: one panel, or several by name, such as the heads of a layer.
        path: the file to write; its suffix decides between PNG and SVG.

    Raises:
        ArgumentError: the suffix is neither, there is nothing to draw, or the file cannot be written.
        AttentError: matplotlib is not installed.
    """
    check_format(path)
    save(figure(panels), path)


def check_format(path: Path | str) -> None:
    """Check that a file's name ends in .png or .svg.

    Raises:
        ArgumentError: it does not.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise ArgumentError(f"a picture's name must end in {' or '.join(FORMATS)}, got {str(path)!r}")


def save(drawing: Figure, path: Path | str) -> None:
    """Write a figure to a file, creating its folder if needed.

    Raises:
        ArgumentError: the file cannot be written.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(path, dpi=DOTS_PER_INCH, bbox_inches="tight")
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written: {error.strerror or error}") from error


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure with a size in inches.

    Raises:
        AttentError: matplotlib is not installed.
    """
    with needs("pictures need matplotlib", "plot"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def figure(panels: Panel | Mapping[str, Panel]) -> Figure:
    """Return the figure that `picture` saves; a notebook shows it.

    Raises:
        ArgumentError: there is nothing to draw.
        AttentError: matplotlib is not installed.
    """
    grid = [panels] if isinstance(panels, Panel) else list(panels.values())
    refuse((not grid, "there is no map to draw"))
    across = math.ceil(math.sqrt(len(grid)))
    down = math.ceil(len(grid) / across)
    widths, heights = zip(*map(_size, grid), strict=True)
    drawing = new_figure(across * max(widths), down * max(heights))
    unit, *limits = _scale(grid)
    axes = drawing.subplots(down, across, squeeze=False).flatten()
    images = [
        _draw_panel(area, panel, len(panel.columns) if unit == MULTIPLES else 1, limits)
        for area, panel in zip(axes, grid, strict=False)
    ]
    for area in axes[len(grid) :]:
        area.set_axis_off()
    _add_color_bar(drawing, images[0], list(axes), unit)
    return drawing


def _add_color_bar(drawing: Figure, image: Any, axes: Any, unit: str) -> None:
    bar = drawing.colorbar(image, ax=axes, fraction=0.03, pad=0.02, aspect=30)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.ax.tick_params(labelsize=7, length=2)
    bar.set_label(unit, fontsize=8)


def _draw_panel(axes: Any, panel: Panel, factor: int, limits: Sequence[float]) -> Any:
    image = axes.imshow(
        (panel.weights * factor).numpy(),
        vmin=limits[0],
        vmax=limits[1],
        cmap=color_map(),
        aspect="auto",
        interpolation="nearest",
    )
    axes.set_title("\n".join(filter(None, (panel.title, panel.reading))), fontsize=8, loc="left")
    axes.set_xlabel(legend((*panel.rows, *panel.columns)), fontsize=6, loc="left", color=color("quiet"))
    axes.xaxis.tick_top()
    for axis, labels in ((axes.xaxis, panel.columns), (axes.yaxis, panel.rows)):
        step = math.ceil(len(labels) / MAX_LABELS) if labels else 1
        texts = [drawable(label) for label in labels[::step]]
        axis.set_ticks(range(0, len(labels), step), texts, fontsize=8, fontfamily=list(fonts("".join(texts))))
        is_vertical = axis is axes.xaxis and max(map(len, texts), default=0) > 2
        axis.set_tick_params(length=0, rotation=90 if is_vertical else 0)
    axes.set_xticks([edge - 0.5 for edge in range(1, len(panel.columns))], minor=True)
    axes.set_yticks([edge - 0.5 for edge in range(1, len(panel.rows))], minor=True)
    axes.grid(which="minor", color=color("line"), linewidth=0.4)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_color(color("line"))
    return image


def _size(panel: Panel) -> tuple[float, float]:
    """Return the width and height of a map including its labels, in inches."""
    width, height = (
        min(max(len(labels) * CELL, MIN_SIDE), MAX_SIDE) + max(map(len, others), default=0) * LETTER + MARGIN
        for labels, others in ((panel.columns, panel.rows), (panel.rows, panel.columns))
    )
    return max(width, LETTER * 0.8 * max(map(len, (panel.title, panel.reading)))), height


def _scale(panels: Sequence[Panel]) -> tuple[str, float, float]:
    """Return the unit of the scale of colors, and its ends.

    They are multiples of uniform for maps of many keys whose rows sum to 1; else 0 and 1, or further if numbers are.
    """
    keys, sums = max(len(panel.columns) for panel in panels), [panel.weights.sum(-1) for panel in panels]
    if keys > FEW and all(bool(((total - 1).abs() < TOLERANCE).all()) for total in sums):
        return MULTIPLES, 1.0, float(min(FULL, keys))
    extremes = [
        value
        for panel in panels
        if panel.weights.numel()
        for value in (panel.weights.min().item(), panel.weights.max().item())
    ]
    return "weight", min(0.0, *extremes, 0.0), max(1.0, *extremes, 1.0)


def drawable(label: str) -> str:
    """Replace characters that no font can draw with their code points."""
    return "".join(character if font_with(ord(character)) else f"{ord(character):04X}" for character in visible(label))


def fonts(text: str) -> tuple[str, ...]:
    """Return the fonts needed to draw a text, the default one first."""
    return tuple(dict.fromkeys((DEFAULT_FONT, *filter(None, (font_with(ord(character)) for character in text)))))


@cache
def font_with(character: int) -> str | None:
    """Return the name of a font on this machine that has a character, preferably the default one.

    None if no font has it.
    """
    if unicodedata.category(chr(character)).startswith("C"):
        return DEFAULT_FONT
    return next((name for name, path in _font_paths().items() if character in _characters(path)), None)


@cache
def _font_paths() -> dict[str, str]:
    """Return the file of every font by name, the default one first."""
    from matplotlib.font_manager import fontManager

    paths: dict[str, str] = {}
    # upright fonts of regular weight first; matplotlib draws only the first face of a collection
    for entry in sorted(
        fontManager.ttflist,
        key=lambda entry: (
            entry.name != DEFAULT_FONT,
            entry.style != "normal",
            str(entry.weight) not in ("400", "normal", "regular"),
        ),
    ):
        if not entry.name.startswith(PLACEHOLDER_FONT):
            paths.setdefault(entry.name, entry.fname)
    return paths


@cache
def _characters(path: str) -> frozenset[int]:
    """Return the characters of a font; none if its file cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()


# Side of one picture, in inches.
SIDE = 1.7
PICTURES_PER_ROW = 4
# How opaque the overlay is at most: the picture stays recognizable.
OPAQUE = 0.6
READING = "weights of the class token on the patches; in each title, their sum: the rest is on the class token itself"


def cls_weights(maps: Sequence[AttentionMap]) -> dict[str, Tensor]:
    """Return the weights of the CLS vector on all other positions, (T,), by name.

    The names are those of the last layer's heads, their mean, and rollout. The weight on the CLS vector itself is left
    out, and the others are not renormalized.

    Args:
        maps: the self-attention maps of one example, (1, H, 1 + T, 1 + T), from the first layer to the last.

    Raises:
        ArgumentError: there is no map.
        ShapeError: the maps contain several examples.
    """
    refuse((not maps, "there is no map to draw"))
    refuse((maps[-1].shape[0] != 1, f"maps must be of one example, got {maps[-1].shape[0]}"), kind=ShapeError)
    heads = maps[-1][0, :, 0, 1:].detach().float().cpu()  # (H, T)
    by_head = {f"head {number}": weights for number, weights in enumerate(heads)}
    return by_head | {
        f"mean of {len(heads)} heads": heads.mean(0),
        "rolled out": rollout(maps, [0])[0, 0, 1:].float().cpu(),
    }


def cls_panel(maps: Sequence[AttentionMap], labels: Sequence[str] | None = None, title: str = "") -> Panel:
    """Build a heat map of `cls_weights`, with a row for each name and a column for each position.

    Args:
        maps: see `cls_weights`.
        labels: a label for each position; numbers by default.
        title: the title of the panel.

    Raises:
        ShapeError: the number of labels differs from the number of positions.
    """
    weights = cls_weights(maps)
    dense = torch.stack([*weights.values()])
    columns = tuple(map(str, range(dense.shape[1])) if labels is None else labels)
    return Panel(
        dense,
        tuple(weights),
        columns,
        title,
        "weights of the class token on each position, in the last layer and by rollout through all layers",
    )


def draw_overlay(
    pixels: np.ndarray, grid: tuple[int, int], maps: Sequence[AttentionMap], path: Path | str, title: str = ""
) -> None:
    """Draw a picture overlaid with the weights of the CLS vector on each patch, and save it to a file.

    Args:
        pixels: the picture (H, W, C), bytes or floats from 0 to 1.
        grid: the number of patches from top to bottom and from left to right.
        maps: see `cls_weights`.
        path: the file to write; its suffix decides between PNG and SVG.
        title: the title of the figure.

    Raises:
        ArgumentError: the suffix is neither, there is no map, or the file cannot be written.
        AttentError: matplotlib is not installed.
        ShapeError: the maps have a different number of patches.
    """
    check_format(path)
    save(overlay_figure(pixels, grid, cls_weights(maps), title, keys=maps[-1].shape[-1]), path)


def draw_scene(scene: Scene, panels: Panel | Mapping[str, Panel], path: Path | str) -> None:
    """Draw panels of a scene as `picture` does, or each row of a panel of a picture's patches over the picture.

    A row is drawn over the picture if it is of something else than a patch, such as a word.

    Args:
        scene: the scene.
        panels: see `picture`.
        path: see `picture`; the errors are the same.
    """
    over = scene.picture
    if over is None or not isinstance(panels, Panel) or panels.rows == panels.columns or over.before:
        return picture(panels, path)
    check_format(path)
    names = [f"{number}. {visible(label.strip())}" for number, label in enumerate(panels.rows, start=1)]
    weights = dict(zip(names, panels.weights, strict=True))
    return save(overlay_figure(over.pixels, over.grid, weights, scene.title, panels.reading), path)


def overlay_figure(
    pixels: np.ndarray,
    grid: tuple[int, int],
    weights: Mapping[str, Tensor],
    title: str = "",
    reading: str = READING,
    keys: int | None = None,
) -> Figure:
    """Return the figure that `draw_overlay` saves; a notebook shows it.

    Args:
        pixels: see `draw_overlay`.
        grid: see `draw_overlay`.
        weights: the weights of the patches, (T,), by name.
        title: the title of the figure.
        reading: a line that explains the weights.
        keys: the number of keys, of which uniform is one part; the number of patches by default.

    Raises:
        AttentError: matplotlib is not installed.
        ShapeError: the weights have a different number of patches.
    """
    rows = math.ceil((1 + len(weights)) / PICTURES_PER_ROW)
    drawing = new_figure(PICTURES_PER_ROW * SIDE, rows * (SIDE + 0.2) + 0.3)
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    if wrong := [len(values) for values in weights.values() if len(values) != math.prod(grid)]:
        raise ShapeError(f"there are {grid[0]} x {grid[1]} patches, got weights of {wrong[0]}")
    axes = drawing.subplots(rows, PICTURES_PER_ROW, squeeze=False).flatten()
    for area in axes:
        area.set_axis_off()
    _draw_pixels(axes[0], pixels, "picture")
    keys = keys or math.prod(grid)
    # transparent up to uniform; this color differs from black and from white
    ends, image = [to_rgba(palette()["ramp"][3], opacity) for opacity in (0.0, OPAQUE)], None
    over = LinearSegmentedColormap.from_list("overlay", ends)
    height, width = pixels.shape[:2]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    for area, (name, values) in zip(axes[1:], weights.items(), strict=False):
        _draw_pixels(area, pixels, f"{name}: {float(values.sum()):.0%}")
        image = area.imshow(
            (values * keys).reshape(grid).numpy(),
            extent=extent,
            cmap=over,
            vmin=1,
            vmax=min(FULL, keys),
            interpolation="nearest",
        )
    if image is not None:
        _add_color_bar(drawing, image, list(axes), MULTIPLES)
    drawing.suptitle("\n".join(filter(None, (title, reading))), fontsize=8, x=0.01, horizontalalignment="left")
    return drawing


def _draw_pixels(axes: Axes, pixels: np.ndarray, title: str) -> None:
    values = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    axes.imshow(values, cmap="gray", vmin=0, vmax=255 if pixels.dtype == np.uint8 else 1, interpolation="nearest")
    axes.set_title(title, fontsize=7, loc="left")
