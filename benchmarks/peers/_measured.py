"""Code shared by the peers' scripts, which run in the environments of other projects, without attent.

The scripts read the files of benchmarks/_peers.py: source.txt and target.txt contain the names of pieces, one sentence
per line, in the order of attent's own batches; batches.json contains the number of lines of each batch, vocabulary.txt
the pieces by id, and model.json attent's settings.
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
    """Parse the common command line, and set torch's threads and seed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, help="the folder that benchmarks/_peers.py wrote")
    parser.add_argument("--updates", type=int, default=10, help="updates to measure")
    parser.add_argument("--warmup", type=int, default=3, help="updates before those, which do not count")
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens a batch, padding included")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    return options


def model_in(folder: Path) -> dict[str, Any]:
    """Read the settings of attent's model."""
    return json.loads((folder / "model.json").read_text(encoding="utf-8"))


def ids(file: Path) -> list[list[int]]:
    """Read lines of pieces as ids; a piece's name is a letter and its id."""
    return [[int(piece[1:]) for piece in line.split()] for line in file.read_text(encoding="utf-8").splitlines()]


class Enough(Exception):  # noqa: N818 - a signal, no error
    """A signal that the last update to measure has ended."""


class Clock:
    """Counts tokens from the start of one update to the start of another.

    Args:
        warmup: the number of updates that do not count.
        updates: the number of updates that count.
    """

    def __init__(self, warmup: int, updates: int) -> None:
        self.warmup, self.updates = warmup, updates
        self.count, self.tokens, self.started, self.seconds = 0, 0, 0.0, 0.0

    def begin(self, tokens: int) -> None:
        """Count an update that begins, with its number of source and target tokens without padding.

        Raises:
            Enough: the previous update was the last to measure.
        """
        if self.count == self.warmup:
            self.started = time.perf_counter()
        elif self.count == self.warmup + self.updates:
            self.seconds = time.perf_counter() - self.started
            raise Enough
        self.count += 1
        if self.count > self.warmup:
            self.tokens += tokens

    @property
    def rate(self) -> float:
        """The tokens per second."""
        return self.tokens / self.seconds


@contextmanager
def quietly():
    """Redirect a toolkit's output to standard error, since standard output is for the result."""
    with redirect_stdout(sys.stderr):
        yield


def say(package: str, **values: object) -> None:
    """Print the result as a line of JSON."""
    print(json.dumps({"package": package, "version": version(package), "torch": version("torch")} | values), flush=True)
