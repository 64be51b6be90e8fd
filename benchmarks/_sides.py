"""Code shared by the benchmarks: tables for RESULTS.md. attent.experiments does the timing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import torch

from attent.experiments.machine import machine_info, peak_memory
from attent.experiments.report import Report, machine_sentence, markdown
from attent.experiments.timing import Work, milliseconds

__all__ = ["Work", "head", "milliseconds", "peak", "run", "show", "table"]


def head(title: str) -> None:
    """Print the title of a benchmark, and the machine."""
    print(f"\n## {title}\n\n{machine_sentence(machine_info())}\n")


def peak() -> float:
    """Return the largest memory of this process so far, in MiB; NaN where the system does not report it."""
    peak = peak_memory()
    return float("nan") if peak is None else peak


def table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table in Markdown."""
    print("\n".join(markdown(columns, rows)), flush=True)


def show(report: Report) -> None:
    """Print a report."""
    print("\n".join(report.lines()), flush=True)


def run(parts: Mapping[str, Callable[[], None]], description: str | None) -> None:
    """Run the parts that the command line names, or all of them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(parts)}; default: all")
    torch.manual_seed(0)
    for part in parser.parse_args().parts or parts:
        parts[part]()
