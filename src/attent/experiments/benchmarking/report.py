"""What was measured, as tables for people (Markdown) and as values for machines (JSON)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Values by key: text, numbers, or None where there is none.
Row = dict[str, Any]


class Column(NamedTuple):
    """A column of a table.

    Args:
        key: the value of a row that it shows.
        title: what stands above it.
        form: how a number is written: as Python's format has it, or what a function makes of it.
    """

    key: str
    title: str
    form: str | Callable[[float], str] = ""

    def cell(self, row: Row) -> str:
        """What stands in this column; nothing where there is no value."""
        value = row.get(self.key)
        if value is None or isinstance(value, str):
            return value or ""
        return format(value, self.form) if isinstance(self.form, str) else self.form(value)


@dataclass(frozen=True)
class Table:
    """Rows of values, and which of them are shown.

    Args:
        title: what the rows are about.
        columns: what is shown, from left to right.
        rows: values by key, of which a table for machines holds all.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]

    def lines(self) -> list[str]:
        """The table in Markdown."""
        return markdown([column.title for column in self.columns], [[column.cell(row) for column in self.columns] for row in self.rows])


@dataclass(frozen=True)
class Report:
    """What one measurement found.

    Args:
        title: what was measured.
        machine: on what, as `attent.experiments.benchmarking.machine` tells it.
        tables: the results.
        notes: what else is to be known, such as what was left out and why.
    """

    title: str
    machine: Mapping[str, str | int]
    tables: Sequence[Table]
    notes: Sequence[str] = field(default_factory=list)

    def lines(self, commit: str | None = None) -> list[str]:
        """The report in Markdown, line by line.

        Args:
            commit: of the sources measured, where it is known.
        """
        lines = ["", f"## {self.title}", "", on(self.machine, commit)]
        for table in self.tables:
            lines += ["", *([f"{table.title}:", ""] if table.title else []), *table.lines()]
        return lines + [line for note in self.notes for line in ("", note)]

    def values(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        tables = [{"title": table.title, "rows": [dict(row) for row in table.rows]} for table in self.tables]
        return {"title": self.title, "machine": dict(self.machine), "tables": tables, "notes": list(self.notes)}


def three_digits(value: float) -> str:
    """A number to three digits, and never as a power of ten: 0.0512, 3.40, 1,264."""
    before = math.floor(math.log10(abs(value))) + 1 if value else 1
    return f"{value:,.{max(3 - before, 0)}f}"


def on(machine: Mapping[str, str | int], commit: str | None = None) -> str:
    """The machine in a sentence."""
    threads = f"{machine['threads']} thread{'s' if machine['threads'] != 1 else ''}"
    versions = f"Python {machine['python']}, torch {machine['torch']}"
    return f"{machine['processor']}, {threads}, {versions}{'' if commit is None else f', commit {commit}'}."


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown, line by line."""
    return ["| " + " | ".join(row) + " |" for row in [columns, ["---"] * len(columns), *rows]]
