"""A matrix of numbers as a table of text, aligned, no wider than the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from attent.views.labels import cut, padded, visible, width

LONGEST_LABEL = 12
# More rows than these are shown by their first and last ones.
MOST_ROWS, LAST_ROWS = 16, 3


def table(
    matrix: Tensor,
    rows: Sequence[str],
    heads: Sequence[str],
    *,
    columns: int,
    sums: Tensor | None = None,
    blocks: int = 1,
    digits: int = 2,
) -> list[str]:
    """A matrix with its labels, line by line.

    One that is too wide goes on below. If that takes more than `blocks` blocks, or there are very many rows, the middle is
    left out, and said to be.

    Args:
        matrix: (rows, columns).
        rows: a label for each row.
        heads: a label for each column.
        columns: how wide a line may be.
        sums: of each row, for a further column.
        blocks: how many blocks below each other there may be.
        digits: after the decimal point.
    """
    names = [cut(visible(label), LONGEST_LABEL) for label in rows]
    titles = [cut(visible(label), LONGEST_LABEL) for label in heads]
    cells = [[number(value, digits) for value in row] for row in matrix.tolist()]
    totals = [] if sums is None else [number(value, 3) for value in sums.tolist()]
    margin = max(map(width, names), default=0)
    each = max(map(width, [*titles, *(cell for row in cells for cell in row)]), default=0) + 2
    room = columns - margin - (max(map(len, totals), default=0) + 5 if totals else 0)
    fit = max(room // each, 2)
    kept = _kept(len(titles), fit * blocks if blocks > 1 and len(titles) <= fit * blocks else fit, 1)
    shown = _kept(len(names), MOST_ROWS, LAST_ROWS)
    gap = len(kept) < len(titles)
    lines: list[str] = []
    for first in range(0, max(len(kept), 1), fit):
        part = kept[first : first + fit]
        ends = totals if first + fit >= len(kept) else []
        lines += [""] if first else []
        lines.append(" " * margin + _line(titles, part, each, gap=gap) + ("  │   Σ" if ends else ""))
        for before, row in zip([-1, *shown], shown, strict=False):
            lines += [padded("⋮", margin)] if row != before + 1 else []
            lines.append(padded(names[row], margin) + _line(cells[row], part, each, gap=gap) + (f"  │ {ends[row]}" if ends else ""))
    left_out = [
        f"{len(names) - len(shown)} of {len(names)} rows" if len(shown) < len(names) else "",
        f"{len(titles) - len(kept)} of {len(titles)} columns" if gap else "",
    ]
    return [*lines, f"({' and '.join(filter(None, left_out))} left out)"] if any(left_out) else lines


def number(value: float, digits: int) -> str:
    """A number as it is printed; what rounds to zero has no sign."""
    if value in (float("inf"), -float("inf")):
        return "∞" if value > 0 else "-∞"
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def _line(cells: Sequence[str], places: Sequence[int], each: int, *, gap: bool) -> str:
    parts = [padded(cells[place], each) for place in places]
    return "".join([*parts[:-1], "  …", parts[-1]]) if gap else "".join(parts)


def _kept(count: int, most: int, last: int) -> list[int]:
    """Which of so many are shown: all, or the first ones and the last."""
    return list(range(count)) if count <= most else [*range(max(most - last - 1, 1)), *range(count - last, count)]
