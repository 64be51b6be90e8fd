"""A walk as text: tables of numbers, aligned, no wider than the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from torch import Tensor

from attent.views.labels import cut, legend, padded, visible, width
from attent.views.panel import panel
from attent.views.step import Step
from attent.views.terminal import heat_map

INDENT = "   "
LONGEST_LABEL = 12
# More rows than these are shown by their first and last ones.
MOST_ROWS, LAST_ROWS = 16, 3


def written(title: str, parts: str, parameters: Mapping[str, Step], steps: Mapping[str, Step], *, head: int | None, columns: int) -> str:
    """The whole walk.

    Args:
        title: what is walked through.
        parts: the parts of attention, in words.
        parameters: the matrices, printed side by side after the first step.
        steps: the steps by name, in order.
        head: the head to show, from 0; all if None.
        columns: how wide a line may be.
    """
    shown = [*(step.rows for step in steps.values()), *(step.columns for step in steps.values())]
    lines = [title, parts]
    explained = legend(label for labels in shown for label in labels)
    lines += [explained] if explained else []
    for number, step in enumerate(steps.values(), start=1):
        lines += ["", *_wrapped(f"{number:>2} {step}", columns), *_wrapped(INDENT + step.meaning, columns)]
        lines += _wrapped(f"{INDENT}For example {step.example}", columns) if step.example else []
        for name, matrix, sums in matrices(step, head):
            lines += ["", *([f"{INDENT}{name}"] if name else [])]
            lines += [INDENT + line for line in table(matrix, step.rows, step.columns, columns=columns - len(INDENT), sums=sums)]
        if number == 1 and parameters:
            lines += [
                "",
                f"{INDENT}The matrices, which a model would learn; here they are random:",
                "",
                *_side_by_side(parameters, columns),
            ]
    weights = steps["weights"]
    glance = {name: panel(matrix, weights.rows, weights.columns, title=name) for name, matrix, _ in matrices(weights, head)}
    return "\n".join([*(line.rstrip() for line in lines), "", f"{INDENT}The weights at a glance", "", heat_map(glance, columns=columns)])


def table(
    matrix: Tensor, rows: Sequence[str], columns_of: Sequence[str], *, columns: int, sums: Tensor | None = None, digits: int = 2
) -> list[str]:
    """A matrix with its labels, line by line; what does not fit is left out in the middle, and said to be.

    Args:
        matrix: (rows, columns).
        rows: a label for each row.
        columns_of: a label for each column.
        columns: how wide a line may be.
        sums: of each row, for a further column.
        digits: after the decimal point.
    """
    names = [cut(visible(label), LONGEST_LABEL) for label in rows]
    heads = [cut(visible(label), LONGEST_LABEL) for label in columns_of]
    margin = max(map(width, names), default=0)
    cells = [[number(value, digits) for value in row] for row in matrix.tolist()]
    each = max(map(width, [*heads, *(cell for row in cells for cell in row)]), default=0) + 2
    total = [] if sums is None else [number(value, 3) for value in sums.tolist()]
    room = columns - margin - (max(map(len, total), default=0) + 5 if total else 0)
    kept = _kept(len(heads), max(room // each, 2), 1)
    shown = _kept(len(names), MOST_ROWS, LAST_ROWS)
    gap = len(kept) < len(heads)
    lines = [" " * margin + _line(heads, kept, each, gap) + ("  │   Σ" if total else "")]
    for before, row in zip([-1, *shown], shown, strict=False):
        if row != before + 1:
            lines.append(padded("⋮", margin))
        end = f"  │ {total[row]}" if total else ""
        lines.append(padded(names[row], margin) + _line(cells[row], kept, each, gap) + end)
    left_out = [
        f"{len(names) - len(shown)} of {len(names)} rows" if len(shown) < len(names) else "",
        f"{len(heads) - len(kept)} of {len(heads)} columns" if gap else "",
    ]
    return [*lines, f"({' and '.join(filter(None, left_out))} left out)"] if any(left_out) else lines


def number(value: float, digits: int) -> str:
    """A number as it is printed; zero has no sign."""
    if value in (float("inf"), -float("inf")):
        return "∞" if value > 0 else "-∞"
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def _line(cells: Sequence[str], kept: Sequence[int], each: int, gap: bool) -> str:
    parts = [padded(cells[place], each) for place in kept]
    return "".join([*parts[:-1], "  …", parts[-1]]) if gap else "".join(parts)


def _kept(count: int, most: int, last: int) -> list[int]:
    """Which of so many are shown: all, or the first ones and the last."""
    if count <= most:
        return list(range(count))
    return [*range(max(most - last - 1, 1)), *range(count - last, count)]


def _wrapped(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns, subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False)


def matrices(step: Step, head: int | None) -> list[tuple[str, Tensor, Tensor | None]]:
    """The matrices of a step to show, each with its name and the sums of its rows: one for each head, or the one head asked for.

    Of a step with a further axis (a vector for every pair) the first query's part is shown.
    """
    if step.values.dim() < 4:
        return [("", step.values.reshape(step.values.shape[-2:]), None)]
    count = step.values.shape[1]
    found = []
    for which in range(count) if head is None else [head]:
        values = step.values[0, which]
        name = f"head {which}" if count > 1 and head is None else ""
        if values.dim() == 3:
            values, name = values[0], ", ".join(filter(None, (name, "of the first query; rows are the keys")))
        found.append((name, values, None if step.sums is None else step.sums[0, which]))
    return found


def _side_by_side(parameters: Mapping[str, Step], columns: int) -> list[str]:
    blocks = [[name, *table(step.values, step.rows, step.columns, columns=columns)] for name, step in parameters.items()]
    widest = [max(map(width, block)) for block in blocks]
    if sum(widest) + 4 * len(blocks) + len(INDENT) > columns:
        return [INDENT + line for block in blocks for line in (*block, "")][:-1]
    return [
        (INDENT + "    ".join(padded(line, most, left=True) for line, most in zip(lines, widest, strict=True))).rstrip()
        for lines in zip(*blocks, strict=True)
    ]
