"""Spoil what commands read, and see that each serves or refuses in one line: scripts/fuzz."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from attent.cli.app import run
from fuzzing import fixtures
from fuzzing.cases import Case, draw
from fuzzing.fork import Limits
from fuzzing.harness import Finding, findings, preload


def main(
    seed: Annotated[int, typer.Option(help="Of all cases.")] = 1,
    cases: Annotated[int, typer.Option(min=1, help="How many.")] = 250,
    case: Annotated[int | None, typer.Option(min=0, help="This one alone, whose folder is kept.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time; one for each core unless given.")] = os.cpu_count() or 1,
    seconds: Annotated[float, typer.Option(help="The most that a case may take.")] = Limits.seconds,
    megabytes: Annotated[float, typer.Option(help="The same of memory, above what imports take.")] = Limits.megabytes,
) -> None:
    """Spoil what commands read, and see that each serves, or refuses in one line that names what was spoilt."""
    began, limits = time.monotonic(), Limits(seconds, megabytes)
    codes, failures, slowest, largest = Counter[int](), 0, 0.0, 0.0
    preload()
    material = Path(tempfile.mkdtemp(prefix="fuzz."))
    try:
        fixtures.write(material)
        numbers = [*range(cases)] if case is None else [case]
        for finding in findings(numbers, partial(_drawn, seed, material), run, material, jobs, limits):
            outcome = finding.outcome
            codes[outcome.code] += 1
            slowest, largest = max(slowest, outcome.seconds), max(largest, outcome.megabytes)
            if finding.faults:
                failures += 1
                print(failure(finding, seed), flush=True)
            if case is not None:
                print(f"{finding.case}\nexit code {outcome.code}, {outcome.seconds:.2f} s, {outcome.megabytes:.0f} MB")
                print(f"{outcome.out}{outcome.err}its folder: {finding.folder}")
    finally:
        if case is None:
            shutil.rmtree(material)
    ended = ", ".join(f"{count} with {code}" for code, count in sorted(codes.items()))
    print(
        f"{sum(codes.values())} cases of seed {seed}: {failures} failures; ended {ended}; at most {slowest:.1f} s and "
        f"{largest:.0f} MB; {time.monotonic() - began:.0f} s in all"
    )
    raise typer.Exit(1 if failures else 0)


def _drawn(seed: int, material: Path, number: int, folder: Path, canary: Path) -> Case:
    return draw(seed, number, material, folder, canary)


def failure(finding: Finding, seed: int) -> str:
    """Return what is said of a case that failed, and how to see it again."""
    last = (finding.outcome.err.splitlines() or [""])[-1]
    return f"--seed {seed} --case {finding.number}: {'; '.join(finding.faults)}\n  {finding.case}\n  {last[:300]}"


if __name__ == "__main__":
    typer.run(main)
