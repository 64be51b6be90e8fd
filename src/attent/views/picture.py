"""Heat maps as pictures, PNG or SVG, drawn with matplotlib.

matplotlib is an extra. Its global state (pyplot, the backend, the settings) is neither read nor changed.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attent.errors import ArgumentError, needs
from attent.views.labels import legend, visible
from attent.views.panel import Panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
# Inches of a cell, of a letter of a label, and of the margins of a map.
CELL, LETTER, MARGIN = 0.22, 0.085, 0.45
# Inches of a map.
MIN_SIDE, MAX_SIDE = 1.6, 24.0
MAX_LABELS = 200
DOTS_PER_INCH = 150
DEFAULT_FONT = "DejaVu Sans"
# A font that has every character, and draws for each the name of its script.
PLACEHOLDER_FONT = "Last Resort"


def picture(panels: Panel | Mapping[str, Panel], path: Path | str) -> None:
    """Draw one map, or several in a grid, into a file.

    Dark is a large weight. The colors are distinguishable for everyone, and in gray print. A character of a label that
    no font on this machine has is written as its code point.

    Args:
        panels: one, or several by name, such as the heads of a layer.
        path: the file, whose ending decides between PNG and SVG.

    Raises:
        ArgumentError: the ending is neither, there is nothing to draw, or the file cannot be written.
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
    """Write a figure to a file, and create its folder.

    Raises:
        ArgumentError: the file cannot be written.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(path, dpi=DOTS_PER_INCH, bbox_inches="tight")
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written: {error.strerror or error}") from error


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches.

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
    if not grid:
        raise ArgumentError("there is no map to draw")
    across = math.ceil(math.sqrt(len(grid)))
    down = math.ceil(len(grid) / across)
    widths, heights = zip(*map(_size, grid), strict=True)
    drawing = new_figure(across * max(widths), down * max(heights))
    low, high = _range(grid)
    axes = drawing.subplots(down, across, squeeze=False).flatten()
    images = [_draw(area, panel, low, high) for area, panel in zip(axes, grid, strict=False)]
    for area in axes[len(grid) :]:
        area.set_axis_off()
    add_color_bar(drawing, images[0], list(axes))
    return drawing


def add_color_bar(drawing: Figure, image: Any, axes: Any) -> None:
    """Add a scale of weights beside some axes."""
    bar = drawing.colorbar(image, ax=axes, fraction=0.03, pad=0.02, aspect=30)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.ax.tick_params(labelsize=7, length=2)
    bar.set_label("weight", fontsize=8)


def _draw(axes: Any, panel: Panel, low: float, high: float) -> Any:
    image = axes.imshow(
        panel.weights.numpy(), vmin=low, vmax=high, cmap="Blues", aspect="auto", interpolation="nearest"
    )
    axes.set_title("\n".join(filter(None, (panel.title, panel.reading))), fontsize=8, loc="left")
    axes.set_xlabel(legend((*panel.rows, *panel.columns)), fontsize=6, loc="left", color="#666666")
    axes.xaxis.tick_top()
    for axis, labels in ((axes.xaxis, panel.columns), (axes.yaxis, panel.rows)):
        step = math.ceil(len(labels) / MAX_LABELS) if labels else 1
        texts = [drawable(label) for label in labels[::step]]
        axis.set_ticks(range(0, len(labels), step), texts, fontsize=8, fontfamily=list(fonts("".join(texts))))
        is_vertical = axis is axes.xaxis and max(map(len, texts), default=0) > 2
        axis.set_tick_params(length=0, rotation=90 if is_vertical else 0)
    axes.set_xticks([edge - 0.5 for edge in range(1, len(panel.columns))], minor=True)
    axes.set_yticks([edge - 0.5 for edge in range(1, len(panel.rows))], minor=True)
    axes.grid(which="minor", color="#dddddd", linewidth=0.4)
    axes.tick_params(which="minor", length=0)
    for spine in axes.spines.values():
        spine.set_color("#999999")
    return image


def _size(panel: Panel) -> tuple[float, float]:
    """Return the width and the height of a map with its labels, in inches."""
    width, height = (
        min(max(len(labels) * CELL, MIN_SIDE), MAX_SIDE) + max(map(len, others), default=0) * LETTER + MARGIN
        for labels, others in ((panel.columns, panel.rows), (panel.rows, panel.columns))
    )
    return max(width, LETTER * 0.8 * max(map(len, (panel.title, panel.reading)))), height


def _range(panels: Sequence[Panel]) -> tuple[float, float]:
    """Return 0 and 1, or a wider range if there are weights outside."""
    extremes = [
        value
        for panel in panels
        if panel.weights.numel()
        for value in (panel.weights.min().item(), panel.weights.max().item())
    ]
    return min(0.0, *extremes, 0.0), max(1.0, *extremes, 1.0)


def drawable(label: str) -> str:
    """Replace the characters that no font can draw by their code points."""
    return "".join(character if font_with(ord(character)) else f"{ord(character):04X}" for character in visible(label))


def fonts(text: str) -> tuple[str, ...]:
    """Return the fonts that draw a text, the default one first."""
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
    # upright and of regular weight first; matplotlib draws the first face of a collection only
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
