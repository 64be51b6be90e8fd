"""What the scripts here share: the commit that is measured, and reports for RESULTS.md. Measuring is attent.experiments's."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from attent.experiments.machine import machine_info, peak_memory
from attent.experiments.report import Report, machine_sentence, markdown
from attent.experiments.timing import Work, milliseconds

__all__ = ["Work", "commit", "head", "milliseconds", "peak", "run", "show", "table"]


def commit() -> str:
    """The commit that is checked out, with a star if files differ from it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty=*"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "unknown"


def head(title: str) -> None:
    """Say what is measured, and where."""
    print(f"\n## {title}\n\n{machine_sentence(machine_info(), commit())}\n")


def peak() -> float:
    """The most memory this process has held, in MiB; not a number where the system does not tell."""
    peak = peak_memory()
    return float("nan") if peak is None else peak


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
