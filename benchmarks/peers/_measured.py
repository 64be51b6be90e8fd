"""What the scripts here share; each runs in the environment of another project, where attent is not installed.

They read what benchmarks/_peers.py writes: pieces by name in source.txt and target.txt, a sentence a line, in the order of attent's
own batches; how many lines each of these has in batches.json; every piece by id in vocabulary.txt; attent's model in model.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any


def arguments(description: str | None) -> argparse.Namespace:
    """The command line that all have in common; torch takes the threads."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, help="what benchmarks/_peers.py wrote")
    parser.add_argument("--updates", type=int, default=10, help="that count")
    parser.add_argument("--warmup", type=int, default=3, help="updates before")
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens a batch, padding included")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    import torch

    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    return asked


def model_in(folder: Path) -> dict[str, Any]:
    """The settings of attent's model."""
    return json.loads((folder / "model.json").read_text(encoding="utf-8"))


def ids(file: Path) -> list[list[int]]:
    """Lines of pieces as ids; a piece's name is a letter and its id."""
    return [[int(piece[1:]) for piece in line.split()] for line in file.read_text(encoding="utf-8").splitlines()]


class Enough(Exception):  # noqa: N818 - a signal, no error
    """All updates that count are done."""


class Clock:
    """Counts tokens from the start of one update to the start of another.

    Args:
        warmup: updates that do not count.
        updates: updates that do.
    """

    def __init__(self, warmup: int, updates: int) -> None:
        self.warmup, self.updates = warmup, updates
        self.begun, self.tokens, self.started, self.seconds = 0, 0, 0.0, 0.0

    def begin(self, tokens: int) -> None:
        """An update of so many source and target tokens begins, padding not counted.

        Raises:
            Enough: the one before it was the last that counts.
        """
        if self.begun == self.warmup:
            self.started = time.perf_counter()
        elif self.begun == self.warmup + self.updates:
            self.seconds = time.perf_counter() - self.started
            raise Enough
        self.begun += 1
        if self.begun > self.warmup:
            self.tokens += tokens

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


@contextmanager
def quietly():
    """What a toolkit prints goes to standard error, for standard output is for the result."""
    with redirect_stdout(sys.stderr):
        yield


def say(package: str, **values: object) -> None:
    """The result, a line of JSON."""
    print(json.dumps({"package": package, "version": version(package), "torch": version("torch")} | values), flush=True)
