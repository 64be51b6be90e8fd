"""A heat map for the terminal: a line for each query, a block for each key."""

from __future__ import annotations

import shutil
from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import groupby

from attent.views.labels import clusters, cut, legend, padded, visible, width
from attent.views.panel import Panel

SHADES = " ░▒▓█"
# From which share of the scale on each shade but the first is drawn: a weight that is small but there is to be seen.
FROM = (0.05, 0.25, 0.5, 0.75)
# The 24 greys of a terminal with 256 colours begin here.
GREYS, GREY = 24, 232
LONGEST_LABEL, TALLEST_LABEL = 24, 12
MOST_ROWS = 64


def heat_map(panels: Panel | Mapping[str, Panel], *, columns: int | None = None, colour: bool = False) -> str:
    """The weights as blocks, the darker the larger, with the labels of rows and columns.

    A line ends with the key that its query looks at most, and that weight. A map that is too wide is cut into parts, one
    below the other; one with very many rows ends early, and says so.

    Args:
        panels: one, or several by name, drawn one below the other.
        columns: of the terminal; found out if not given.
        colour: whether to write greys with ANSI codes in place of shaded blocks.
    """
    columns = shutil.get_terminal_size().columns if columns is None else columns
    several = {"": panels} if isinstance(panels, Panel) else panels
    return "\n\n".join(_drawn(panel, columns, colour) for panel in several.values())


def _drawn(panel: Panel, columns: int, colour: bool) -> str:
    rows = [cut(visible(label), LONGEST_LABEL) for label in panel.rows[:MOST_ROWS]]
    keys = [visible(label) for label in panel.columns]
    weights = panel.weights[:MOST_ROWS].tolist()
    margin = max(map(width, rows), default=0)
    best = [_best(row, keys) for row in weights]
    room = columns - margin - 4 - max(map(width, best), default=0)
    cell = 2 if 2 * len(keys) <= room or max(map(_narrowest, keys), default=1) > 1 else 1
    step = max(room // cell, 1)
    top = max((max(map(abs, row), default=0.0) for row in weights), default=0.0)
    scale = max(top, 1.0)
    reading = f"{panel.reading} · right: where it looks most" if panel.reading else ""
    lines = [line for line in (panel.title, reading) if line]
    for first in range(0, max(len(keys), 1), step):
        part = slice(first, first + step)
        if len(keys) > step:
            lines += ["", f"columns {first + 1} to {min(first + step, len(keys))} of {len(keys)}"]
        lines += [" " * (margin + 2) + line for line in _heading(keys[part], cell)]
        for label, row, most in zip(rows, weights, best, strict=True):
            blocks = "".join(
                _block(shade, cell * len(list(run)), colour)
                for shade, run in groupby(_shade(abs(weight) / scale, colour) for weight in row[part])
            )
            lines.append(f"{padded(label, margin)} │{blocks}│ {most}".rstrip())
    if len(panel.rows) > MOST_ROWS:
        lines.append(f"… and {len(panel.rows) - MOST_ROWS} rows more")
    lines.append(_ramp(scale, colour))
    explained = legend((*panel.rows[:MOST_ROWS], *panel.columns))
    return "\n".join([*lines, explained] if explained else lines)


def _best(row: Sequence[float], keys: Sequence[str]) -> str:
    if not any(row):
        return "sees nothing"
    place = max(range(len(row)), key=row.__getitem__)
    return f"{padded(cut(keys[place], LONGEST_LABEL), 0, left=True)} {row[place]:.2f}"


def _narrowest(label: str) -> int:
    return max(map(width, clusters(label)), default=1)


def _heading(keys: Sequence[str], cell: int) -> list[str]:
    """The column labels, read from top to bottom where one does not fit above its column."""
    stacks = [[key] if width(key) <= cell else clusters(cut(key, TALLEST_LABEL)) for key in keys]
    height = max(map(len, stacks), default=0)
    stacks = [[""] * (height - len(stack)) + stack for stack in stacks]
    return ["".join(padded(stack[line], cell, left=True) for stack in stacks).rstrip() for line in range(height)]


def _shade(share: float, colour: bool) -> int:
    return min(int(share * GREYS), GREYS - 1) if colour else bisect(FROM, share)


def _block(shade: int, columns: int, colour: bool) -> str:
    return f"\x1b[48;5;{GREY + shade}m{' ' * columns}\x1b[0m" if colour else SHADES[shade] * columns


def _ramp(scale: float, colour: bool) -> str:
    if colour:
        return f"0 {''.join(_block(shade, 1, colour) for shade in range(GREYS))} {scale:.3g}"
    return "  ".join(f"{SHADES[shade]} from {scale * start:.2g}" for shade, start in enumerate(FROM, start=1))
