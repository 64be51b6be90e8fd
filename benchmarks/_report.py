"""Results of measurements as tables in Markdown and values for JSON."""

from __future__ import annotations

import math
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from attent.devices import core_count, described, processor

CPU = torch.device("cpu")
# Values by key: text, numbers, or None if there is no value.
Row = dict[str, Any]


class Column(NamedTuple):
    """A column of a table.

    Args:
        key: key of the value to show.
        title: heading.
        form: Python format specification for numbers, or a function that formats them.
    """

    key: str
    title: str
    form: str | Callable[[float], str] = ""

    def cell(self, row: Row) -> str:
        """Return the text of this column in a row; empty if the value is missing or not finite."""
        value = finite(row.get(self.key))
        if value is None or isinstance(value, str):
            return value or ""
        return format(value, self.form) if isinstance(self.form, str) else self.form(value)


@dataclass(frozen=True)
class ResultTable:
    """Rows of values, some of which are shown.

    Args:
        title: title above the table.
        columns: columns from left to right.
        rows: values by key; JSON contains all of them.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]

    def lines(self) -> list[str]:
        """Return the table in Markdown, line by line."""
        return markdown(
            [column.title for column in self.columns],
            [[column.cell(row) for column in self.columns] for row in self.rows],
        )


@dataclass(frozen=True)
class Report:
    """The tables of one measurement.

    Args:
        title: what was measured.
        machine: description of the machine from `machine_info`.
        tables: the results.
        notes: further remarks, such as omissions and their reasons.
        command: command that measured it, if there was one.
    """

    title: str
    machine: Mapping[str, str | int]
    tables: Sequence[ResultTable]
    notes: Sequence[str] = field(default_factory=list)
    command: str | None = None

    def lines(self) -> list[str]:
        """Return the report in Markdown, line by line."""
        lines = ["", f"## {self.title}", "", machine_sentence(self.machine)]
        lines += [] if self.command is None else ["", f"`{self.command}`"]
        for table in self.tables:
            lines += ["", *([f"{table.title}:", ""] if table.title else []), *table.lines()]
        return lines + [line for note in self.notes for line in ("", note)]

    def values(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        tables = [{"title": table.title, "rows": [dict(row) for row in table.rows]} for table in self.tables]
        command = {} if self.command is None else {"command": self.command}
        return {
            "title": self.title,
            "machine": dict(self.machine),
            **command,
            "tables": tables,
            "notes": list(self.notes),
        }


def three_digits(value: float) -> str:
    """Format a number with three significant digits and no exponent: 0.0512, 3.40, 1,264."""
    integer_digits = math.floor(math.log10(abs(value))) + 1 if value else 1
    return f"{value:,.{max(3 - integer_digits, 0)}f}"


def revision(file: Path = Path(__file__)) -> str | None:
    """Return the commit of the Git checkout that contains a file, with a star if tracked files have changed.

    Return None if the file is not in a checkout.
    """
    git = ["git", "-C", str(file.parent)]
    try:
        # an installed package may be inside the checkout of another project
        subprocess.run([*git, "ls-files", "--error-unmatch", file.name], capture_output=True, check=True)
        described = subprocess.run(
            [*git, "describe", "--always", "--dirty=*"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()


def machine_info(device: torch.device = CPU) -> dict[str, str | int]:
    """Return the processor, usable cores, torch's threads, the GPU if it is used, versions and commit."""
    commit = revision()
    return {
        "processor": processor(),
        "cores": core_count(),
        "threads": torch.get_num_threads(),
        **({} if device == CPU else {"device": described(device)}),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **({} if commit is None else {"commit": commit}),
        "system": platform.system(),
    }


def machine_sentence(machine: Mapping[str, str | int]) -> str:
    """Describe the machine, and the commit of attent if it is known, in one sentence."""
    threads = f"{machine['threads']} thread{'s' if machine['threads'] != 1 else ''}"
    commit = str(machine.get("commit", ""))
    tree = "files changed" if commit.endswith("*") else "clean tree"
    source = f", commit {commit.removesuffix('*')} ({tree})" if commit else ""
    return f"{machine['processor']}, {threads}, Python {machine['python']}, torch {machine['torch']}{source}."


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in Markdown, line by line."""
    return ["| " + " | ".join(row) + " |" for row in [columns, ["---"] * len(columns), *rows]]


def finite(value: Any) -> Any:
    """Return a value in which numbers that are not finite are replaced with None."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
