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

from attent.errors import ArgumentError, AttentError
from attent.views.labels import legend, visible
from attent.views.panel import Panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
# Inches for a cell, a letter of a label, and what stands around a map.
CELL, LETTER, AROUND = 0.22, 0.085, 0.45
LEAST, MOST = 1.6, 24.0
MOST_LABELS = 200
DOTS_PER_INCH = 150
FIRST_FONT = "DejaVu Sans"
# A font that has every character, and draws for each the name of its script.
NO_FONT = "Last Resort"


def picture(panels: Panel | Mapping[str, Panel], path: Path | str) -> None:
    """Draw one map, or several in a grid, into a file.

    Dark is a large weight. The colours can be told apart by everyone, and printed in grey. A label's character that no
    font on this machine has is written as its code point.

    Args:
        panels: one, or several by name, such as the heads of a layer.
        path: where to; the ending decides between PNG and SVG.

    Raises:
        ArgumentError: the ending is neither, there is nothing to draw, or the file cannot be written.
        AttentError: matplotlib is not installed.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ArgumentError(f"a picture's name must end in {' or '.join(FORMATS)}, got {str(path)!r}")
    drawn = figure(panels)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn.savefig(path, dpi=DOTS_PER_INCH, bbox_inches="tight")
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written: {error.strerror or error}") from error


def figure(panels: Panel | Mapping[str, Panel]) -> Figure:
    """The figure that `picture` saves; a notebook shows it.

    Raises:
        ArgumentError: there is nothing to draw.
        AttentError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise AttentError("pictures need matplotlib: pip install 'attent[plot]'") from error
    several = [panels] if isinstance(panels, Panel) else list(panels.values())
    if not several:
        raise ArgumentError("there is no map to draw")
    across = math.ceil(math.sqrt(len(several)))
    down = math.ceil(len(several) / across)
    wide, high = zip(*map(_size, several), strict=True)
    whole = Figure(figsize=(across * max(wide), down * max(high)), layout="constrained")
    low, top = _range(several)
    axes = whole.subplots(down, across, squeeze=False).flatten()
    images = [_draw(place, panel, low, top) for place, panel in zip(axes, several, strict=False)]
    for place in axes[len(several) :]:
        place.set_axis_off()
    bar = whole.colorbar(images[0], ax=list(axes), fraction=0.03, pad=0.02, aspect=30)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, length=2)
    bar.set_label("weight", fontsize=8)
    return whole


def _draw(axes: Any, panel: Panel, low: float, top: float) -> Any:
    image = axes.imshow(panel.weights.numpy(), vmin=low, vmax=top, cmap="Blues", aspect="auto", interpolation="nearest")
    axes.set_title("\n".join(filter(None, (panel.title, panel.reading))), fontsize=8, loc="left")
    axes.set_xlabel(legend((*panel.rows, *panel.columns)), fontsize=6, loc="left", color="#666666")
    axes.xaxis.tick_top()
    for axis, labels in ((axes.xaxis, panel.columns), (axes.yaxis, panel.rows)):
        every = math.ceil(len(labels) / MOST_LABELS) if labels else 1
        shown = [drawable(label) for label in labels[::every]]
        axis.set_ticks(range(0, len(labels), every), shown, fontsize=8, fontfamily=list(fonts("".join(shown))))
        turned = axis is axes.xaxis and max(map(len, shown), default=0) > 2
        axis.set_tick_params(length=0, rotation=90 if turned else 0)
    axes.set_xticks([edge - 0.5 for edge in range(1, len(panel.columns))], minor=True)
    axes.set_yticks([edge - 0.5 for edge in range(1, len(panel.rows))], minor=True)
    axes.grid(which="minor", color="#dddddd", linewidth=0.4)
    axes.tick_params(which="minor", length=0)
    for spine in axes.spines.values():
        spine.set_color("#999999")
    return image


def _size(panel: Panel) -> tuple[float, float]:
    across, down = len(panel.columns), len(panel.rows)
    labels = max(map(len, panel.rows), default=0), max(map(len, panel.columns), default=0)
    wide = min(max(across * CELL, LEAST), MOST) + labels[0] * LETTER + AROUND
    high = min(max(down * CELL, LEAST), MOST) + labels[1] * LETTER + AROUND
    return max(wide, LETTER * 0.8 * max(map(len, (panel.title, panel.reading)))), high


def _range(panels: Sequence[Panel]) -> tuple[float, float]:
    """0 to 1, the range of shares; wider only where there are weights outside it."""
    numbers = [value for panel in panels if panel.weights.numel() for value in (panel.weights.min().item(), panel.weights.max().item())]
    return min(0.0, *numbers, 0.0), max(1.0, *numbers, 1.0)


def drawable(label: str) -> str:
    """A label in which what no font can draw is written as its code point."""
    shown = visible(label)
    return "".join(character if font_with(ord(character)) else f"{ord(character):04X}" for character in shown)


def fonts(text: str) -> tuple[str, ...]:
    """The fonts that together can draw a text, the usual one first."""
    found = {FIRST_FONT: None} | {font: None for character in text if (font := font_with(ord(character)))}
    return tuple(found)


@cache
def font_with(character: int) -> str | None:
    """The name of a font on this machine that has a character, the usual one before others; None if no font has it."""
    if unicodedata.category(chr(character)).startswith("C"):
        return FIRST_FONT
    return next((name for name, has in _fonts().items() if character in has()), None)


@cache
def _fonts() -> dict[str, Any]:
    """Every font by name, the usual one first, with what looks its characters up when it is first asked."""
    from matplotlib.font_manager import fontManager
    from matplotlib.ft2font import FT2Font

    paths: dict[str, str] = {}
    # upright and of usual weight first; a face in a collection can only be its first one
    for entry in sorted(
        fontManager.ttflist,
        key=lambda entry: (entry.name != FIRST_FONT, entry.style != "normal", str(entry.weight) not in ("400", "normal", "regular")),
    ):
        if not entry.name.startswith(NO_FONT):
            paths.setdefault(entry.name, entry.fname)

    def look(path: str) -> Any:
        @cache
        def characters() -> frozenset[int]:
            try:
                return frozenset(FT2Font(path).get_charmap())
            except (OSError, RuntimeError):
                return frozenset()

        return characters

    return {name: look(path) for name, path in paths.items()}
