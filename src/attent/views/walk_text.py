"""A walk as text: tables of numbers, aligned, no wider than the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from torch import Tensor

from attent.views.labels import legend, padded, width
from attent.views.panel import panel
from attent.views.step import Step
from attent.views.table import table
from attent.views.terminal import heat_map

INDENT = "   "
# A matrix over the keys that is wider than a line goes on below, so many times at most.
BLOCKS = 3


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
            blocks = BLOCKS if step.axes.endswith("Tk)") else 1
            drawn = table(matrix, step.rows, step.columns, columns=columns - len(INDENT), sums=sums, blocks=blocks)
            lines += [INDENT + line for line in drawn]
        if number == 1 and parameters:
            lines += ["", f"{INDENT}The matrices, random here, learnt in a model:", ""]
            lines += _side_by_side(parameters, columns)
    weights = steps["weights"]
    glance = {name: panel(matrix, weights.rows, weights.columns, title=name) for name, matrix, _ in matrices(weights, head)}
    return "\n".join([*(line.rstrip() for line in lines), "", f"{INDENT}The weights at a glance", "", heat_map(glance, columns=columns)])


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
