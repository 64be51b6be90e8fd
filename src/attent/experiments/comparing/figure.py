"""Figures as pictures, drawn with matplotlib, whose global state is neither read nor changed."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from attent.errors import AttentError
from attent.experiments.comparing.results import Figure
from attent.runs.durable import new_file

# Wong (2011), "Points of view: Color blindness", https://doi.org/10.1038/nmeth.1618
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X")
DOTS_PER_INCH = 150
# Letters of a title's line, marks along a line of many points, and letters of names that need no slant.
TITLE_WIDTH, MARKED, SHORT = 80, 12, 4
# How many times the least value the largest must be for powers of ten to be ticks enough.
WIDE = 1000


def draw(figure: Figure, path: Path) -> Path:
    """Draw a figure into a PNG file, which is returned.

    Raises:
        AttentError: matplotlib is not installed.
        RunError: the file cannot be written.
    """
    drawing = drawn(figure)
    with new_file(path) as file:
        drawing.savefig(file, dpi=DOTS_PER_INCH, format="png")
    return path


def drawn(figure: Figure) -> Any:
    """A figure as matplotlib's.

    Raises:
        AttentError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure as Drawing
    except ImportError as error:
        raise AttentError("pictures need matplotlib: pip install 'attent[plot]'") from error
    names = _names(figure)
    across = max(6.4, 1.5 + 0.62 * len(names))
    drawing = Drawing(figsize=(across, 4.2), layout="constrained")
    axes = drawing.subplots()
    for number, series in enumerate(figure.series):
        _line(axes, figure, number, series.points, series.name, names)
    axes.set(xlabel=figure.x, ylabel=figure.y)
    axes.set_title(textwrap.fill(figure.title, TITLE_WIDTH), size=10, loc="left")
    if figure.log_x:
        axes.set_xscale("log", base=2)
        places = sorted({float(point.x) for series in figure.series for point in series.points})
        axes.set_xticks(places, [f"{place:g}" for place in places])
    if figure.log_y:
        _logarithmic(axes)
    elif figure.kind == "lines":
        axes.set_ylim(bottom=0)
    if names:
        slanted = {"rotation": 40, "ha": "right"} if max(map(len, names)) > SHORT else {}
        axes.set_xticks(range(len(names)), names, **slanted)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if len(figure.series) > 1:
        # among dots and bands there is no room
        _legend(drawing, len(figure.series))
    return drawing


def _legend(drawing: Any, count: int) -> None:
    """The names of so many series, as many side by side as there is room for."""
    for across in range(count, 0, -1):
        legend = drawing.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=across)
        if across == 1 or legend.get_window_extent().width < drawing.bbox.width:
            return
        legend.remove()


def _logarithmic(axes: Any) -> None:
    """A logarithmic axis of heights, with numbers that are read at a glance where it spans few powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    least, largest = axes.get_ylim()
    if largest < WIDE * least:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _names(figure: Figure) -> list[str]:
    """The names along a figure of dots, in the order in which they come."""
    if figure.kind != "dots":
        return []
    return list(dict.fromkeys(str(point.x) for series in figure.series for point in series.points))


def _line(axes: Any, figure: Figure, number: int, points: Any, name: str, names: list[str]) -> None:
    look = {"color": COLOURS[number % len(COLOURS)], "marker": MARKS[number % len(MARKS)], "markersize": 4.5, "label": name}
    # dots of several series stand beside each other
    beside = 0.14 * (number - (len(figure.series) - 1) / 2)
    x = [names.index(str(point.x)) + beside if names else point.x for point in points]
    y = [point.y for point in points]
    low, high = (
        [y[at] if end is None else end for at, end in enumerate(ends)] for ends in zip(*((p.low, p.high) for p in points), strict=True)
    )
    if names:
        spread = [
            [max(at - end, 0.0) for at, end in zip(y, low, strict=True)],
            [max(end - at, 0.0) for at, end in zip(y, high, strict=True)],
        ]
        axes.errorbar(x, y, yerr=spread, linestyle="none", capsize=2.5, linewidth=1.0, **look)
        return
    axes.plot(x, y, linewidth=1.5, markevery=max(len(x) // MARKED, 1), **look)
    axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
