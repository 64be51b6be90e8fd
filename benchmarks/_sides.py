"""What the benchmarks share: both sides timed in turn in one process, and rows for RESULTS.md."""

from __future__ import annotations

import argparse
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

Work = Callable[[], object]


def processor() -> str:
    """The processor's name."""
    cpuinfo = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        if cpuinfo.exists()
        else []
    )
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """The commit that is checked out, with a star if files differ from it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty=*"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "unknown"


def head(title: str) -> None:
    """Say what is measured, and where."""
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    print(f"\n## {title}\n\n{processor()}, {torch.get_num_threads()} threads, {versions}, commit {commit()}.\n")


def peak() -> float:
    """The most memory this process has held, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # what resource tells includes the process that this one came from
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if platform.system() == "Darwin" else 2**10)


def milliseconds(sides: dict[str, Work], *, rounds: int = 15, seconds: float = 3.0) -> dict[str, float]:
    """The least time of each side, the sides in turn; fewer rounds where they take long.

    Within a round each side runs four times in a row and the first does not count, so that each finds the caches and the allocator
    as it left them itself, not as the side before it did.

    Args:
        sides: what to time, by name; each is run once before.
        rounds: how often each is timed at most.
        seconds: no new round begins after so long, the third excepted.
    """
    best = dict.fromkeys(sides, float("inf"))
    for work in sides.values():
        work()
    started = time.perf_counter()
    for number in range(rounds):
        if number >= 3 and time.perf_counter() - started > seconds:
            break
        for name, work in sides.items():
            work()
            for _ in range(3):
                before = time.perf_counter()
                work()
                best[name] = min(best[name], time.perf_counter() - before)
    return {name: 1000 * time_ for name, time_ in best.items()}


def table(columns: list[str], rows: list[list[str]]) -> None:
    """A table in Markdown."""
    for row in [columns, ["---"] * len(columns), *rows]:
        print("| " + " | ".join(row) + " |", flush=True)


def run(parts: Mapping[str, Callable[[], None]], description: str | None) -> None:
    """The parts that the command line names, or all of them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}; all unless named")
    torch.manual_seed(0)
    for part in parser.parse_args().parts or parts:
        parts[part]()
