"""A heat map for the terminal, with a line for each query and a block for each key."""

import shutil
from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import groupby

from attent.views.labels import clusters, cut, legend, pad, visible, width
from attent.views.panel import Panel

SHADES = " ░▒▓█"
# The share of the scale at which each shade after the first begins; low thresholds keep small weights visible.
THRESHOLDS = (0.05, 0.25, 0.5, 0.75)
# The number of grays of a terminal with 256 colors, and the code of the first.
GREYS, FIRST_GREY = 24, 232
MAX_LABEL, MAX_HEADING = 24, 12
MAX_ROWS = 64


def heat_map(panels: Panel | Mapping[str, Panel], *, columns: int | None = None, color: bool = False) -> str:
    """Draw weights as blocks, darker for larger weights, with row and column labels.

    Each line ends with the key of the largest weight and that weight. A map that is too wide is split into parts, one
    below the other; a map with very many rows is cut off, with a note. A note also says if no weight of a long map is
    large enough for a block.

    Args:
        panels: one panel, or several by name, drawn one below the other.
        columns: the width of the terminal; detected by default.
        color: whether to use ANSI grays instead of shaded blocks.
    """
    columns = shutil.get_terminal_size().columns if columns is None else columns
    drawn = [panels] if isinstance(panels, Panel) else panels.values()
    return "\n\n".join(_draw(panel, columns, color) for panel in drawn)


def _draw(panel: Panel, columns: int, color: bool) -> str:
    rows = [cut(visible(label), MAX_LABEL) for label in panel.rows[:MAX_ROWS]]
    keys = [visible(label) for label in panel.columns]
    weights = panel.weights[:MAX_ROWS].tolist()
    margin = max(map(width, rows), default=0)
    maxima = [_maximum(row, keys) for row in weights]
    room = columns - margin - 4 - max(map(width, maxima), default=0)
    widest = max((width(cluster) for key in keys for cluster in clusters(key)), default=1)
    cell = 2 if 2 * len(keys) <= room or widest > 1 else 1
    step = max(room // cell, 1)
    largest = max((abs(weight) for row in weights for weight in row), default=0.0)
    scale = max(1.0, largest)
    if largest and len(rows) == MAX_ROWS and not _shade(largest / scale, color):
        message = f"no weight is large enough for a block: of {len(keys)} keys the largest has {largest:.2g}"
        return "\n".join(filter(None, (panel.title, message)))
    reading = f"{panel.reading} · right: where it looks most" if panel.reading else ""
    lines = [line for line in (panel.title, reading) if line]
    for begin in range(0, max(len(keys), 1), step):
        part = slice(begin, begin + step)
        if len(keys) > step:
            lines += ["", f"columns {begin + 1} to {min(begin + step, len(keys))} of {len(keys)}"]
        lines += [" " * (margin + 2) + line for line in _heading(keys[part], cell)]
        for label, row, maximum in zip(rows, weights, maxima, strict=True):
            shades = groupby(_shade(abs(weight) / scale, color) for weight in row[part])
            blocks = "".join(_block(shade, cell * len(list(run)), color) for shade, run in shades)
            lines.append(f"{pad(label, margin)} │{blocks}│ {maximum}".rstrip())
    if len(panel.rows) > MAX_ROWS:
        lines.append(f"… and {len(panel.rows) - MAX_ROWS} rows more")
    lines += [_ramp(scale, color), *filter(None, [legend((*panel.rows[:MAX_ROWS], *panel.columns))])]
    return "\n".join(lines)


def _maximum(row: Sequence[float], keys: Sequence[str]) -> str:
    """Return the key of the largest weight, followed by the weight."""
    if not any(row):
        return "sees nothing"
    index = max(range(len(row)), key=row.__getitem__)
    return f"{pad(cut(keys[index], MAX_LABEL), 0, left=True)} {row[index]:.2f}"


def _heading(keys: Sequence[str], cell: int) -> list[str]:
    """Return the column labels; they are written vertically if one is wider than its column."""
    is_vertical = any(width(key) > cell for key in keys)
    stacks = [clusters(cut(key, MAX_HEADING)) if is_vertical else [key] for key in keys]
    height = max(map(len, stacks), default=0)
    stacks = [[""] * (height - len(stack)) + stack for stack in stacks]
    return ["".join(pad(stack[line], cell, left=True) for stack in stacks).rstrip() for line in range(height)]


def _shade(share: float, color: bool) -> int:
    return min(int(share * GREYS), GREYS - 1) if color else bisect(THRESHOLDS, share)


def _block(shade: int, columns: int, color: bool) -> str:
    return f"\x1b[48;5;{FIRST_GREY + shade}m{' ' * columns}\x1b[0m" if color else SHADES[shade] * columns


def _ramp(scale: float, color: bool) -> str:
    """Return a legend of the shades."""
    if color:
        return f"0 {''.join(_block(shade, 1, color) for shade in range(GREYS))} {scale:.3g}"
    return "  ".join(
        f"{SHADES[shade]} from {scale * threshold:.2g}" for shade, threshold in enumerate(THRESHOLDS, start=1)
    )
