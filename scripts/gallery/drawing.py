"""Drawing code shared by the plates.

A figure, a labeled matrix, and the colors of the design of pages.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from comparison.results import COLORS
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from attent.views.palette import color, color_map
from attent.views.picture import drawable, fonts

QUERY, KEY, VALUE = COLORS[:3]
GRAY = color("quiet")
# Above this weight, white numbers have a higher contrast than black ones.
DARK = 0.68


def sheet(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def matrix(
    axes: Any,
    weights: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    *,
    digits: int | None = None,
    marked: Collection[tuple[int, int]] = (),
    size: float = 8,
    upright: bool = False,
) -> None:
    """Draw weights with their labels; dark is large.

    Args:
        axes: the axes to draw on.
        weights: the weights, (rows, columns).
        rows: a label for each query.
        columns: a label for each key.
        title: the title of the matrix.
        digits: the number of decimals in each cell; None for no numbers.
        marked: the row and column of each framed cell.
        size: font size of the labels, in points.
        upright: whether columns are wide enough for horizontal labels.
    """
    axes.imshow(weights.numpy(), vmin=0, vmax=1, cmap=color_map(), aspect="auto", interpolation="nearest")
    axes.xaxis.tick_top()
    for axis, labels in ((axes.xaxis, columns), (axes.yaxis, rows)):
        texts = [label_of(label) for label in labels]
        is_rotated = axis is axes.xaxis and not upright and max(map(len, texts), default=0) > 2
        axis.set_ticks(
            range(len(texts)),
            texts,
            fontsize=size,
            fontfamily=list(fonts("".join(texts))),
            rotation=90 if is_rotated else 0,
        )
        axis.set_tick_params(length=0)
    axes.set_title(label_of(title), fontsize=9, loc="left", fontfamily=list(fonts(title)))
    for row, column in marked:
        axes.add_patch(_frame(row, column))
    if digits is not None:
        for row, line in enumerate(weights.tolist()):
            for column, value in enumerate(line):
                ink = "white" if value > DARK else "black" if value > 0.5 * 10**-digits else GRAY
                axes.text(column, row, f"{value:.{digits}f}", ha="center", va="center", fontsize=size - 1, color=ink)
    for spine in axes.spines.values():
        spine.set_color(color("line"))


def label_of(label: str) -> str:
    """Return a label with visible stand-ins for characters that cannot be drawn; spaces between words stay."""
    return " ".join(map(drawable, label.split(" "))) if label.strip() else drawable(label)


def bar(sheet: Any, axes: Any, label: str = "weight") -> None:
    """Draw the color scale of matrices, from 0 to 1."""
    scale = sheet.colorbar(ScalarMappable(Normalize(0, 1), color_map()), ax=axes, fraction=0.03, pad=0.02, aspect=30)
    scale.outline.set_visible(False)
    scale.ax.tick_params(labelsize=8, length=2)
    scale.set_label(label, fontsize=8)


def plain(axes: Any, x: str, y: str, title: str = "") -> None:
    """Label the axes, and remove the upper and the right border."""
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(labelsize=8, length=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _frame(row: int, column: int) -> Any:
    return Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=KEY, linewidth=1.3)
