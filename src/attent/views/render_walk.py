"""Rendering of walks as text, in aligned tables no wider than the terminal, and as HTML for notebooks.

The HTML has no script, style sheet or id, so that a page can hold any number of walks.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from torch import Tensor

from attent.views.labels import cut, legend, pad, visible, width
from attent.views.panel import panel
from attent.views.step import WalkStep
from attent.views.terminal import heat_map

INDENT = "   "
# Maximum number of blocks into which a matrix wider than a line is split.
MAX_BLOCKS = 3
MAX_LABEL = 12
# A table with more rows than MAX_ROWS shows the first ones and the last LAST_ROWS.
MAX_ROWS, LAST_ROWS = 16, 3
# Maximum number of rows and columns of an HTML table.
MAX_HTML = 64
CELL_STYLE = "padding:1px 6px;text-align:right;border:none;font-variant-numeric:tabular-nums"
MATRIX_DIV = '<div style="margin-right:2em">'
# Steps whose cells are shaded by value.
SHADED = ("weights", "dropped", "probabilities")


@dataclass(frozen=True)
class Walk:
    """All steps of one attention; `print` shows them as text, a notebook as tables.

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
                    f"{INDENT}The matrices, random here, learnt in a model:",
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
        return self.html()

    def html(self, *, limit: int | None = MAX_HTML, digits: int = 2) -> str:
        """Return the walk as HTML.

        Tables have at most `limit` rows and columns (all if None), and `digits` digits after the decimal point.
        """
        form = limit, digits
        sections = [
            _html_section(number, step, self.head, form) for number, step in enumerate(self.steps.values(), start=1)
        ]
        if self.parameters:
            tables = "".join(
                f"{MATRIX_DIV}{escape(name)}{_html_tables(step, self.head, form)}</div>"
                for name, step in self.parameters.items()
            )
            after_given = 1 + list(self.steps).index("X")
            sections[after_given:after_given] = [
                (
                    "<p>The matrices, random here, learnt in a model:</p><div "
                    f'style="display:flex;flex-wrap:wrap">{tables}</div>'
                )
            ]
        heading = f'<div style="font-weight:bold" dir="auto">{escape(self.title)}</div><div>{escape(self.parts)}</div>'
        return f'<div style="font-family:sans-serif;line-height:1.4">{heading}{"".join(sections)}</div>'


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


def _html_section(number: int, step: WalkStep, head: int | None, form: tuple[int | None, int]) -> str:
    shape = f'<span style="opacity:0.6">{escape(step.axes)} = {step.shape}</span>'
    example = f'<p style="margin:2px 0">For example <code>{escape(step.example)}</code></p>' if step.example else ""
    return (
        '<details open style="margin:8px 0">'
        f'<summary>{number}&ensp;<code>{escape(step.equation)}</code>&ensp;{shape}</summary><p style="margin:2px '
        f'0">{escape(step.meaning)}</p>{example}{_html_tables(step, head, form)}</details>'
    )


def _html_tables(step: WalkStep, head: int | None, form: tuple[int | None, int]) -> str:
    tables = (
        f"{MATRIX_DIV}{escape(name)}{_html_table(step, matrix, sums, *form)}</div>"
        for name, matrix, sums in matrices(step, head)
    )
    return f'<div style="display:flex;flex-wrap:wrap">{"".join(tables)}</div>'


def _html_table(step: WalkStep, matrix: Tensor, sums: Tensor | None, limit: int | None, digits: int) -> str:
    headings = ["", *map(visible, step.columns[:limit]), *([] if sums is None else ["Σ"])]
    lines = [f"<tr>{''.join(_html_cell(heading, 'th') for heading in headings)}</tr>"]
    for number, (label, row) in enumerate(zip(step.rows[:limit], matrix.tolist(), strict=False)):
        texts = [format_number(value, digits) for value in row[:limit]]
        if step.cells:
            texts = [f"{visible(word)} {text}" for word, text in zip(step.cells[number], texts, strict=False)]
        shades = row[:limit] if step.name in SHADED else [0.0] * len(texts)
        cells = "".join(_html_cell(text, shade=shade) for text, shade in zip(texts, shades, strict=True))
        total = "" if sums is None else _html_cell(format_number(sums[number].item(), 3))
        lines.append(f"<tr>{_html_cell(visible(label), 'th')}{cells}{total}</tr>")
    is_cut = limit is not None and max(len(step.rows), len(step.columns)) > limit
    note = f"<div>(the first {limit} rows and columns)</div>" if is_cut else ""
    source = f'data-step="{escape(step.name)}" data-axes="{escape(step.axes.strip("()"))}"'
    return f'<table {source} style="border-collapse:collapse;width:auto">{"".join(lines)}</table>{note}'


def _html_cell(text: str, tag: str = "td", shade: float = 0.0) -> str:
    # at most 70 % opaque: the number stays legible on white and on black
    background = f";background:rgba(31,119,180,{min(abs(shade), 1.0) * 0.7:.2f})" if shade else ""
    return f'<{tag} dir="auto" style="{CELL_STYLE}{background}">{escape(text)}</{tag}>'
