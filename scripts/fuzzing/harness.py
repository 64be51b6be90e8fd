"""Running cases in processes forked from one that has imported everything.

Each case has a workspace with its folder and a canary folder.
"""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import attent
from fuzzing.cases import Case
from fuzzing.fork import Child, Limits, Outcome
from fuzzing.oracle import changes, faults, snapshot

# Modules needed only with a GPU or another library, and third-party ones that commands import on demand.
WITHOUT = ("triton", "_compiled", "integrations", "__main__")
LATE = (
    "PIL.Image",
    "PIL.PngImagePlugin",
    "sklearn.datasets",
    "ctranslate2",
    "sentencepiece",
    "sacrebleu",
    "babel.dates",
    "torch._dynamo",
)
CASE, CANARY = "case", "canary"
OWN = (CASE, f"{CASE}.out", f"{CASE}.err")

# Writes the input of the case with this number into its folder; links may lead to the canary.
Draw = Callable[[int, Path, Path], Case]
Command = Callable[[Sequence[str]], int]


class Finding(NamedTuple):
    """A finished case and the faults of its outcome."""

    number: int
    case: Case
    outcome: Outcome
    faults: list[str]
    folder: Path


def preload() -> None:
    """Import everything that commands use, so that forked processes need not."""
    import torch

    torch.set_num_threads(1)
    names = [module.name for module in pkgutil.walk_packages(attent.__path__, "attent.")]
    for name in (*(name for name in names if not any(part in name for part in WITHOUT)), *LATE):
        with suppress(ImportError):
            importlib.import_module(name)


def write_canary(folder: Path) -> None:
    """Write files that no command may touch."""
    for name in ("photos/2019/a.jpg", "photos/20200101/b.jpg", "photos/00000002/state.json", "notes.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    (folder / "notes.txt").chmod(0o600)


class Attempt:
    """A running case.

    Args:
        number: the case number.
        draw: writes the input of the case.
        command: returns the exit code for the arguments of the command.
        workspace: the folder to create; an existing one is replaced.
        limits: the limits of time and memory.
    """

    def __init__(self, number: int, draw: Draw, command: Command, workspace: Path, limits: Limits) -> None:
        self._number, self._workspace, self._limits = number, workspace, limits
        shutil.rmtree(workspace, ignore_errors=True)
        (workspace / CASE).mkdir(parents=True)
        write_canary(workspace / CANARY)
        self._case = case = draw(number, workspace / CASE, workspace / CANARY)
        self._before = snapshot(workspace, skip=OWN)

        def action() -> int:
            # as with `python -m attent`
            sys.path.insert(0, "")
            return command(case.arguments)

        stdin = None if case.stdin is None else workspace / CASE / case.stdin
        self._child = Child(action, workspace / CASE, limits, stdin)

    def poll(self) -> Finding | None:
        """Return the finding, or None while the case is running."""
        if (outcome := self._child.poll()) is None:
            return None
        case = self._case
        wrong = faults(outcome, case.mutation.culprits, self._limits, is_json=case.is_json)
        wrong += changes(self._before, snapshot(self._workspace, skip=OWN))
        return Finding(self._number, case, outcome, wrong, self._workspace / CASE)


def findings(
    numbers: Sequence[int], draw: Draw, command: Command, folder: Path, jobs: int, limits: Limits
) -> Iterator[Finding]:
    """Run cases concurrently, and yield the finding of each.

    A case that took too long beside others is run again by itself.

    Args:
        numbers: the case numbers.
        draw: writes the input of a case.
        command: the function to run with a case's arguments.
        folder: the folder for workspaces.
        jobs: the number of concurrent processes.
        limits: the limits of each process.
    """
    queue, slow, running = list(reversed(numbers)), list[int](), dict[int, Attempt]()
    while queue or running:
        for job in range(jobs):
            if job not in running and queue:
                running[job] = Attempt(queue.pop(), draw, command, folder / f"job{job}", limits)
        for job, attempt in list(running.items()):
            if (finding := attempt.poll()) is not None:
                del running[job]
                if finding.outcome.seconds > limits.seconds and jobs > 1:
                    slow.append(finding.number)
                else:
                    yield finding
        time.sleep(0.002)
    if slow:
        yield from findings(slow, draw, command, folder, 1, limits)
