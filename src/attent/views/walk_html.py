"""A walk as HTML for notebooks: no script, no style sheet and no name, so that any number of them can stand on a page."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from torch import Tensor

from attent.views.labels import visible
from attent.views.step import Step
from attent.views.table import number
from attent.views.walk_text import matrices

MOST = 64
CELL = "padding:1px 6px;text-align:right;border:none;font-variant-numeric:tabular-nums"
SHADED = ("weights", "dropped")


def written(title: str, parts: str, parameters: Mapping[str, Step], steps: Mapping[str, Step], *, head: int | None) -> str:
    """The whole walk; arguments as for `walk_text.written`."""
    first, *rest = steps.values()
    sections = [_section(1, first, head)]
    if parameters:
        tables = "".join(f'<div style="margin-right:2em">{escape(name)}{_tables(step, head)}</div>' for name, step in parameters.items())
        sections.append(f'<p>The matrices, random here, learnt in a model:</p><div style="display:flex;flex-wrap:wrap">{tables}</div>')
    sections += [_section(place, step, head) for place, step in enumerate(rest, start=2)]
    heading = f'<div style="font-weight:bold" dir="auto">{escape(title)}</div><div>{escape(parts)}</div>'
    return f'<div style="font-family:sans-serif;line-height:1.4">{heading}{"".join(sections)}</div>'


def _section(place: int, step: Step, head: int | None) -> str:
    shape = f'<span style="opacity:0.6">{escape(step.axes)} = {step.shape}</span>'
    example = f'<p style="margin:2px 0">For example <code>{escape(step.example)}</code></p>' if step.example else ""
    return (
        f'<details open style="margin:8px 0"><summary>{place}&ensp;<code>{escape(step.equation)}</code>&ensp;{shape}</summary>'
        f'<p style="margin:2px 0">{escape(step.meaning)}</p>{example}{_tables(step, head)}</details>'
    )


def _tables(step: Step, head: int | None) -> str:
    found = (
        f'<div style="margin-right:2em">{escape(name)}{_table(step, matrix, sums)}</div>' for name, matrix, sums in matrices(step, head)
    )
    return f'<div style="display:flex;flex-wrap:wrap">{"".join(found)}</div>'


def _table(step: Step, matrix: Tensor, sums: Tensor | None) -> str:
    heads = "".join(_cell(visible(label), "th") for label in step.columns[:MOST]) + (_cell("Σ", "th") if sums is not None else "")
    lines = [f"<tr>{_cell('', 'th')}{heads}</tr>"]
    for place, (label, row) in enumerate(zip(step.rows[:MOST], matrix.tolist(), strict=False)):
        cells = "".join(_cell(number(value, 2), shade=value if step.name in SHADED else 0.0) for value in row[:MOST])
        end = _cell(number(sums[place].item(), 3)) if sums is not None else ""
        lines.append(f"<tr>{_cell(visible(label), 'th')}{cells}{end}</tr>")
    cut = len(step.rows) > MOST or len(step.columns) > MOST
    note = f"<div>(the first {MOST} rows and columns)</div>" if cut else ""
    return f'<table style="border-collapse:collapse;width:auto">{"".join(lines)}</table>{note}'


def _cell(text: str, tag: str = "td", shade: float = 0.0) -> str:
    # half opaque, so that the number can be read on it, on white and on black
    background = f";background:rgba(31,119,180,{min(abs(shade), 1.0) * 0.7:.2f})" if shade else ""
    return f'<{tag} dir="auto" style="{CELL}{background}">{escape(text)}</{tag}>'
