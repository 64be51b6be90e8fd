"""Code shared by the benchmarks: tables for RESULTS.md, and alternating timings of the sides."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import torch
from _machine import peak_memory
from _report import Report, machine_info, machine_sentence, markdown
from calibrate import Work, time_in_turn

__all__ = ["Work", "head", "milliseconds", "peak", "run", "show", "table"]


def milliseconds(sides: Mapping[str, Work], *, rounds: int = 15, seconds: float = 3.0) -> dict[str, float]:
    """Return the shortest time of each side; arguments as for `time_in_turn`."""
    return {name: timing.best for name, timing in time_in_turn(sides, rounds=rounds, seconds=seconds).items()}


def head(title: str) -> None:
    """Print the title of a benchmark and the machine."""
    print(f"\n## {title}\n\n{machine_sentence(machine_info())}\n")


def peak() -> float:
    """Return the peak memory of this process so far, in MiB; NaN if the system does not report it."""
    peak = peak_memory()
    return float("nan") if peak is None else peak


def table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table in Markdown."""
    print("\n".join(markdown(columns, rows)), flush=True)


def show(report: Report) -> None:
    """Print a report."""
    print("\n".join(report.lines()), flush=True)


def run(parts: Mapping[str, Callable[[], None]], description: str | None) -> None:
    """Run the parts named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(parts)}; default: all")
    torch.manual_seed(0)
    for part in parser.parse_args().parts or parts:
        parts[part]()
