"""Corrupt the input of commands, and check that each succeeds or fails with a one-line error: scripts/fuzz."""

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
from fuzzing.documents import growing
from fuzzing.fork import Limits
from fuzzing.growth import checked, document_faults
from fuzzing.harness import Finding, findings, preload
from fuzzing.kills import differences
from fuzzing.replacements import replaced
from fuzzing.requests import attack

# A run of a few kilobytes, which live servers serve.
PAIRS = Path(__file__).parents[2] / "tests" / "frozen" / "runs" / "pairs"


def main(
    seed: Annotated[int, typer.Option(help="Seed of all cases.")] = 1,
    cases: Annotated[int, typer.Option(min=1, help="Number of cases.")] = 250,
    case: Annotated[int | None, typer.Option(min=0, help="Run only this case, and keep its folder.")] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Instead, send this many requests, hostile and valid, to a live server.")
    ] = None,
    documents: Annotated[
        int | None, typer.Option(min=1, help="Instead, test this many random documents, and each growing kind.")
    ] = None,
    replacements: Annotated[
        int | None, typer.Option(min=1, help="Instead, replace a run this many times while it is served.")
    ] = None,
    kind: Annotated[str, typer.Option(help="With --documents: only growing kinds whose names contain it.")] = "",
    kills: Annotated[
        int | None, typer.Option(min=1, help="Instead, kill a training this many times and compare it with another.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Number of concurrent processes; one per core by default.")
    ] = os.cpu_count() or 1,
    seconds: Annotated[float, typer.Option(help="Maximum seconds of a case.")] = Limits.seconds,
    megabytes: Annotated[float, typer.Option(help="The same of memory, above what imports take.")] = Limits.megabytes,
) -> None:
    """Corrupt the input of commands, and check that each succeeds or fails with one line that names the culprit."""
    material = Path(tempfile.mkdtemp(prefix="fuzz."))
    is_kept = case is not None
    try:
        if requests is not None:
            failures = _print(
                attack(PAIRS, material, seed, [*range(requests)] if case is None else [case], verbose=is_kept)
            )
        elif documents is not None:
            failures = _documents(seed, [*range(documents)], kind, jobs, case, material)
        elif replacements is not None:
            failures = _print(replaced(material, seed, replacements))
        elif kills is not None:
            preload()
            wrong = differences(kills, seed, material, print)
            print(
                "\n".join(wrong or ["the same weights, optimizer, log, results and translations; nothing left behind"])
            )
            failures = len(wrong)
        else:
            preload()
            failures = _fuzz(
                seed,
                [*range(cases)] if case is None else [case],
                material,
                jobs,
                Limits(seconds, megabytes),
                verbose=is_kept,
            )
        # for a server, its log is kept
        is_kept |= bool(failures) and (requests or replacements) is not None
    finally:
        if is_kept:
            print(f"kept: {material}")
        else:
            shutil.rmtree(material)
    raise typer.Exit(1 if failures else 0)


def _fuzz(seed: int, numbers: list[int], material: Path, jobs: int, limits: Limits, *, verbose: bool) -> int:
    """Run cases, print the failures and a summary, and return the number of failures."""
    began, codes, failures, slowest, largest = time.monotonic(), Counter[int](), 0, (0.0, 0), (0.0, 0)
    fixtures.write(material)
    for finding in findings(numbers, partial(_drawn, seed, material), run, material, jobs, limits):
        outcome = finding.outcome
        codes[outcome.code] += 1
        slowest, largest = (
            max(slowest, (outcome.seconds, finding.number)),
            max(largest, (outcome.megabytes, finding.number)),
        )
        if finding.faults:
            failures += 1
            print(failure(finding, seed), flush=True)
        if verbose:
            print(f"{finding.case}\nexit code {outcome.code}, {outcome.seconds:.2f} s, {outcome.megabytes:.0f} MB")
            print(f"{outcome.out}{outcome.err}its folder: {finding.folder}")
    ended = ", ".join(f"{count} with {code}" for code, count in sorted(codes.items()))
    print(
        f"{len(numbers)} cases of seed {seed}: {failures} failures; ended {ended}; at most {slowest[0]:.1f} s (case "
        f"{slowest[1]}) and {largest[0]:.0f} MB (case {largest[1]}); {time.monotonic() - began:.0f} s in all"
    )
    return failures


def _print(result: tuple[list[str], str]) -> int:
    """Print the faults and a summary, and return the number of faults."""
    wrong, summary = result
    print("\n".join([*wrong, summary]))
    return len(wrong)


def _documents(seed: int, numbers: list[int], kind: str, jobs: int, case: int | None, folder: Path) -> int:
    """Check documents, or a single one, which is kept; return the number of faults."""
    began, failures = time.monotonic(), 0
    if case is not None:
        ending, content, wrong = document_faults(seed, case)
        file = folder / f"document{ending}"
        file.write_bytes(content)
        return _print((wrong, f"the document: {file}"))
    kinds = [name for name in growing() if kind in name]
    for wrong in checked(seed, numbers, kinds, jobs):
        failures += len(wrong)
        if wrong:
            print("\n".join(wrong), flush=True)
    seconds = time.monotonic() - began
    print(
        f"{len(kinds)} kinds that grow, {len(numbers):,} documents of seed {seed}: {failures} failures; {seconds:.0f} "
        "s in all"
    )
    return failures


def _drawn(seed: int, material: Path, number: int, folder: Path, canary: Path) -> Case:
    return draw(seed, number, material, folder, canary)


def failure(finding: Finding, seed: int) -> str:
    """Return the description of a failed case, with the options that reproduce it."""
    last = (finding.outcome.err.splitlines() or [""])[-1]
    return f"--seed {seed} --case {finding.number}: {'; '.join(finding.faults)}\n  {finding.case}\n  {last[:300]}"


if __name__ == "__main__":
    typer.run(main)
