"""The oracle of the fuzzer: faults in the outcome of a command."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from fuzzing.fork import Limits, Outcome

PREFIX, TRACEBACK, UNEXPECTED, ESCAPE = "attent: ", "Traceback (most recent call last)", "unexpected ", "\x1b"
# The report of a single input line that failed while others succeeded.
LINE_REPORT = re.compile(r"(?:.*, )?line [\d,]+: ")
# Python's own warnings.
WARNING = re.compile(r"^\S+:\d+: \w*Warning: |^\w*Warning: ", re.MULTILINE)


def faults(outcome: Outcome, culprits: Sequence[str], limits: Limits, *, is_json: bool = False) -> list[str]:
    """Return the faults of an outcome; none if the command succeeded or failed with one line that names a culprit.

    Args:
        outcome: the exit code, output, time and memory.
        culprits: names of what was corrupted; the error must contain one of them.
        limits: the limits of time and memory.
        is_json: whether each line of its output must be JSON.
    """
    wrong = []
    if outcome.seconds > limits.seconds:
        wrong.append(f"ran longer than {limits.seconds:g} s")
    if outcome.megabytes > limits.megabytes:
        wrong.append(f"took more than {limits.megabytes:g} MB")
    if not wrong and outcome.code not in (0, 2):
        wrong.append(f"ended by signal {-outcome.code}" if outcome.code < 0 else f"exit code {outcome.code}")
    printed = outcome.out + outcome.err
    if TRACEBACK in printed:
        wrong.append("a traceback")
    if WARNING.search(outcome.err):
        wrong.append("a warning of Python's")
    if ESCAPE in printed:
        wrong.append("a terminal escape in the output")
    if is_json and not all(map(_is_json, outcome.out.splitlines())):
        wrong.append("output that is not JSON")
    return wrong + (
        _of_message(outcome.err.splitlines(), culprits) if outcome.code == 2 and TRACEBACK not in printed else []
    )


def _of_message(lines: Sequence[str], culprits: Sequence[str]) -> list[str]:
    errors = [line for line in lines if line.startswith(PREFIX)]
    if not errors and lines and all(LINE_REPORT.match(line) for line in lines):
        return []
    if len(errors) != 1 or lines[-1] != errors[0]:
        return [f"{len(errors)} error lines of {len(lines)} on standard error, expected one, the last"]
    wrong = []
    if errors[0].startswith(PREFIX + UNEXPECTED):
        wrong.append("an unexpected error")
    if not any(spelling in errors[0] for culprit in culprits for spelling in _spellings(culprit)):
        wrong.append(
            f"no culprit in the message, expected one of {', '.join(ascii(culprit)[1:-1] for culprit in culprits)}"
        )
    return wrong


def _spellings(name: str) -> tuple[str, ...]:
    """Return a name as messages write it: in one line, with unprintable characters escaped."""
    return (
        name,
        " ".join(name.split()),
        repr(name)[1:-1],
        json.dumps(name)[1:-1],
        name.encode("utf-8", "backslashreplace").decode(),
    )


def _is_json(line: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(line, parse_constant=refuse)
    except ValueError:
        return False
    return True


def snapshot(folder: Path, skip: Sequence[str] = ()) -> dict[str, tuple[object, ...]]:
    """Return the mode, size, time and content of everything in a folder except the entries to skip, by path.

    Links are not followed.
    """
    entries: dict[str, tuple[object, ...]] = {}
    tops = [path for path in folder.iterdir() if path.name not in skip]
    for path in (
        *tops,
        *(Path(root) / name for top in tops for root, folders, files in os.walk(top) for name in (*folders, *files)),
    ):
        status = path.lstat()
        content = b""
        if stat.S_ISREG(status.st_mode):
            content = hashlib.sha256(path.read_bytes()).digest()
        elif stat.S_ISLNK(status.st_mode):
            content = str(path.readlink()).encode(errors="surrogateescape")
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        entries[str(path.relative_to(folder))] = (status.st_mode, size, status.st_mtime_ns, content)
    return entries


def changes(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]) -> list[str]:
    """Return a line for each path that differs between two snapshots."""
    return [
        f"changed outside its folder: {path}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]
