"""What the scripts here share: the commit that is measured, and reports for RESULTS.md. Measuring is attent.experiments.benchmarking's."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from attent.experiments.benchmarking.machine import machine
from attent.experiments.benchmarking.machine import peak as most_held
from attent.experiments.benchmarking.report import Report, markdown, on
from attent.experiments.benchmarking.timing import Work, milliseconds

__all__ = ["Work", "commit", "head", "milliseconds", "peak", "run", "show", "table"]


def commit() -> str:
    """The commit that is checked out, with a star if files differ from it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty=*"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "unknown"


def head(title: str) -> None:
    """Say what is measured, and where."""
    print(f"\n## {title}\n\n{on(machine(), commit())}\n")


def peak() -> float:
    """The most memory this process has held, in MiB; not a number where the system does not tell."""
    held = most_held()
    return float("nan") if held is None else held


def table(columns: list[str], rows: list[list[str]]) -> None:
    """A table in Markdown."""
    print("\n".join(markdown(columns, rows)), flush=True)


def show(report: Report) -> None:
    """A report with the commit."""
    print("\n".join(report.lines(commit())), flush=True)


def run(parts: Mapping[str, Callable[[], None]], description: str | None) -> None:
    """The parts that the command line names, or all of them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}; all unless named")
    torch.manual_seed(0)
    for part in parser.parse_args().parts or parts:
        parts[part]()
