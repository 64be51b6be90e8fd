"""Rendering of walks as text, in aligned tables no wider than the terminal, and as a page."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from torch import Tensor

from attent.views.labels import cut, legend, pad, visible, width
from attent.views.pages.page import Page, bundle, fill, web_file
from attent.views.panel import panel
from attent.views.step import WalkStep
from attent.views.terminal import heat_map

INDENT = "   "
# Maximum number of blocks into which a matrix wider than a line is split.
MAX_BLOCKS = 3
MAX_LABEL = 12
# Digits after the decimal point on a page.
DIGITS = 6
# A table with more rows than MAX_ROWS shows the first ones and the last LAST_ROWS.
MAX_ROWS, LAST_ROWS = 16, 3


@dataclass(frozen=True)
class Walk:
    """All steps of one attention; `print` shows them as text, a notebook as a page in a frame.

    Args:
        title: the name of the attention.
        parts: a description of the score, the normalizer and the heads.
        parameters: the matrices that the steps use, by name; shown after the first step.
        steps: the steps by name, in order.
        head: the head to show, from 0; all of them if None.
    """

    title: str
    parts: str
    parameters: Mapping[str, WalkStep]
    steps: Mapping[str, WalkStep]
    head: int | None = None

    def text(self, columns: int | None = None) -> str:
        """Return the walk as text for a terminal, whose width is detected by default."""
        columns = shutil.get_terminal_size().columns if columns is None else columns
        labels = [*(step.rows for step in self.steps.values()), *(step.columns for step in self.steps.values())]
        lines = [self.title, self.parts, *filter(None, [legend(label for group in labels for label in group)])]
        for number, step in enumerate(self.steps.values(), start=1):
            lines += ["", *_wrap(f"{number:>2} {step}", columns), *_wrap(INDENT + step.meaning, columns)]
            lines += _wrap(f"{INDENT}For example {step.example}", columns) if step.example else []
            blocks = MAX_BLOCKS if step.axes.endswith("Tk)") else 1
            for name, matrix, sums in matrices(step, self.head):
                lines += ["", *([f"{INDENT}{name}"] if name else [])]
                rendered = table(
                    matrix,
                    step.rows,
                    step.columns,
                    width_limit=columns - len(INDENT),
                    sums=sums,
                    blocks=blocks,
                    words=step.cells,
                )
                lines += [INDENT + line for line in rendered]
            if step.name == "X" and self.parameters:
                lines += [
                    "",
                    f"{INDENT}The matrices, {next(iter(self.parameters.values())).meaning}:",
                    "",
                    *_side_by_side(self.parameters, columns),
                ]
        weights = self.steps["weights"]
        panels = {
            name: panel(matrix, weights.rows, weights.columns, title=name)
            for name, matrix, _ in matrices(weights, self.head)
        }
        lines = [
            *(line.rstrip() for line in lines),
            "",
            f"{INDENT}The weights at a glance",
            "",
            heat_map(panels, columns=columns),
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return walk_page(self)._repr_html_()


def walk_page(walk: Walk) -> Page:
    """Build a page of a walk: a row of matrices that reads like the equation, with every row and column.

    The chosen word's row is highlighted in every matrix, and the number in focus is written out as a sum.

    Args:
        walk: the walk of a text or a run, as `attent.walk` returns it.
    """
    steps = [
        {
            **{name: getattr(step, name) for name in ("name", "equation", "axes", "shape", "cells")},
            "meaning": step.meaning + " Of the first query; rows are the keys." * (step.values.dim() > 4),
            "rows": [*map(visible, step.rows)],
            "columns": [*map(visible, step.columns)],
            "heads": [
                [[round(value, DIGITS) for value in row] for row in matrix.tolist()]
                for _, matrix, _ in matrices(step, None)
            ],
        }
        for step in (*walk.steps.values(), *walk.parameters.values())
    ]
    data = {"title": walk.title, "parts": walk.parts, "head": walk.head or 0, "steps": steps}
    parts = {
        # prevents words from closing the element around the numbers
        "walk": json.dumps(data).replace("<", "\\u003c"),
        "script": bundle("walk"),
        "title": escape(walk.title),
        "style": web_file("tokens.css") + web_file("walk.css"),
    }
    return fill("walk.html", parts)


def matrices(step: WalkStep, head: int | None) -> list[tuple[str, Tensor, Tensor | None]]:
    """Return the matrices of a step with their names and row sums.

    There is one for each head, or only that of the selected head. If a step has a vector for every pair, the matrix of
    the first query is returned.
    """
    if step.values.dim() < 4:
        return [("", step.values.reshape(step.values.shape[-2:]), None)]
    count = step.values.shape[1]
    parts = []
    for number in range(count) if head is None else [head]:
        values = step.values[0, number]
        name = f"head {number}" if count > 1 and head is None else ""
        if values.dim() == 3:
            values, name = values[0], ", ".join(filter(None, (name, "of the first query; rows are the keys")))
        parts.append((name, values, None if step.sums is None else step.sums[0, number]))
    return parts


def table(
    matrix: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    width_limit: int,
    sums: Tensor | None = None,
    blocks: int = 1,
    words: Sequence[Sequence[str]] = (),
) -> list[str]:
    """Return the lines of a matrix with its labels.

    A matrix that is too wide is split into blocks, one below the other. If that takes too many blocks, or there are
    very many rows, the middle is left out, and the last line says so.

    Args:
        matrix: (rows, columns).
        rows: a label for each row.
        columns: a label for each column.
        width_limit: the maximum width of a line.
        sums: the sums of the rows, shown in an additional column.
        blocks: the maximum number of blocks.
        words: a word before each number, by row; none by default.
    """
    row_labels = [cut(visible(label), MAX_LABEL) for label in rows]
    headings = [cut(visible(label), MAX_LABEL) for label in columns]
    cells = _cells(matrix, words)
    totals = [] if sums is None else [format_number(value, 3) for value in sums.tolist()]
    margin = max(map(width, row_labels), default=0)
    cell_width = max(map(width, [*headings, *(cell for row in cells for cell in row)]), default=0) + 2
    room = width_limit - margin - (max(map(len, totals), default=0) + 5 if totals else 0)
    fit = max(room // cell_width, 2)
    column_index = _sample(len(headings), fit * blocks if blocks > 1 and len(headings) <= fit * blocks else fit, 1)
    row_index = _sample(len(row_labels), MAX_ROWS, LAST_ROWS)
    has_gap = len(column_index) < len(headings)

    def line(texts: Sequence[str], index: Sequence[int]) -> str:
        parts = [pad(texts[column], cell_width) for column in index]
        return "".join([*parts[:-1], "  …", parts[-1]] if has_gap else parts)

    lines: list[str] = []
    for begin in range(0, max(len(column_index), 1), fit):
        block = column_index[begin : begin + fit]
        block_totals = totals if begin + fit >= len(column_index) else []
        lines += [""] if begin else []
        lines.append(" " * margin + line(headings, block) + ("  │   Σ" if block_totals else ""))
        for before, row in zip([-1, *row_index], row_index, strict=False):
            lines += [pad("⋮", margin)] if row != before + 1 else []
            lines.append(
                pad(row_labels[row], margin)
                + line(cells[row], block)
                + (f"  │ {block_totals[row]}" if block_totals else "")
            )
    omitted = [
        f"{len(row_labels) - len(row_index)} of {len(row_labels)} rows" if len(row_index) < len(row_labels) else "",
        f"{len(headings) - len(column_index)} of {len(headings)} columns" if has_gap else "",
    ]
    return [*lines, f"({' and '.join(filter(None, omitted))} left out)"] if any(omitted) else lines


def _cells(matrix: Tensor, words: Sequence[Sequence[str]]) -> list[list[str]]:
    cells = [[format_number(value, 2) for value in row] for row in matrix.tolist()]
    if not words:
        return cells
    return [
        [f"{cut(visible(word), MAX_LABEL)} {cell}" for word, cell in zip(*row, strict=True)]
        for row in zip(words, cells, strict=True)
    ]


def format_number(value: float, digits: int) -> str:
    """Format a number; a result of zero has no sign."""
    if value in (float("inf"), -float("inf")):
        return "∞" if value > 0 else "-∞"
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def _sample(count: int, bound: int, last: int) -> list[int]:
    """Return the indices to show: all, or the first and last ones."""
    return list(range(count)) if count <= bound else [*range(max(bound - last - 1, 1)), *range(count - last, count)]


def _wrap(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns, subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False)


def _side_by_side(parameters: Mapping[str, WalkStep], columns: int) -> list[str]:
    blocks = [
        [name, *table(step.values, step.rows, step.columns, width_limit=columns)] for name, step in parameters.items()
    ]
    widths = [max(map(width, block)) for block in blocks]
    if sum(widths) + 4 * len(blocks) + len(INDENT) > columns:
        return [INDENT + line for block in blocks for line in (*block, "")][:-1]
    return [
        (
            INDENT
            + "    ".join(pad(line, block_width, left=True) for line, block_width in zip(lines, widths, strict=True))
        ).rstrip()
        for lines in zip(*blocks, strict=True)
    ]
