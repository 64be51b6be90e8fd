"""What a person sees of training while it runs."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

import torch
from torch import Tensor

from attent.errors import AttentError
from attent.printable import printable

# Seconds between records; each needs the loss, for which an accelerator must be waited for.
RECORD_INTERVAL = 1.0
# Seconds between the lines of a file; a terminal's line is rewritten with each record.
LINE_INTERVAL = 5.0

# Takes a record of the log.
Log = Callable[[Mapping[str, Any]], None]


def clock(seconds: float) -> str:
    """Seconds as m:ss, or h:mm:ss from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """One line about training: rewritten on a terminal, repeated every few seconds elsewhere.

    Args:
        stream: where it goes; standard error unless said otherwise, for standard output is for results.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.rewrites = self.stream.isatty()
        self.shown = float("-inf")

    def show(self, record: Mapping[str, float], done: float, answer: str = "token") -> None:
        """Show a record of the log.

        Args:
            record: as `Meter` makes it.
            done: how much of training is over, 0 to 1; what is left is expected to go on at the same pace.
            answer: what the loss is the mean of.
        """
        now = time.monotonic()
        if not self.rewrites and done < 1 and now - self.shown < LINE_INTERVAL:
            return
        self.shown = now
        left = clock(record["seconds"] * (1 / done - 1)) if done > 0 else "?"
        line = (
            f"update {record['update']}  loss {record['loss']:.4f} nats/{answer}  {record['tokens_per_second']:,.0f} {answer}s/s  "
            f"rate {record['learning_rate']:.2e}  {clock(record['seconds'])} elapsed, {left} left"
        )
        # The escape clears what a longer line before it has left.
        self._write(f"\r{line}\x1b[K" if self.rewrites else f"{line}\n")

    def say(self, line: str) -> None:
        """Say something that stays."""
        line = printable(line)
        self._write(f"\r{line}\x1b[K\n" if self.rewrites else f"{line}\n")

    def say_scores(self, update: int, scores: Mapping[str, float]) -> None:
        """Say what a validation found."""
        if scores:
            self.say(f"update {update}  " + "  ".join(f"{name} {score:.4g}" for name, score in scores.items()))

    def close(self) -> None:
        """End the rewritten line."""
        if self.rewrites and self.shown > float("-inf"):
            self._write("\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


class Meter:
    """Sums up the updates between two records.

    Args:
        device: where the losses are.
        seconds: spent before, in a run that goes on.
    """

    def __init__(self, device: torch.device, seconds: float = 0.0) -> None:
        self.recorded = time.monotonic()
        self.started = self.recorded - seconds
        self.losses, self.updates, self.tokens = torch.zeros((), device=device), 0, 0

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def due(self) -> bool:
        """Whether it is time for a record."""
        return self.updates > 0 and time.monotonic() - self.recorded > RECORD_INTERVAL

    def add(self, loss: Tensor, tokens: int) -> None:
        """Take one update into account.

        Args:
            loss: a scalar, in nats per token; it is not read here, which would make the update wait.
            tokens: how many target tokens it had.
        """
        self.losses, self.updates, self.tokens = self.losses + loss.detach(), self.updates + 1, self.tokens + tokens

    def record(self, update: int, learning_rate: float) -> dict[str, float]:
        """The mean loss in nats per token and the speed since the last record.

        Raises:
            AttentError: the loss is no longer finite.
        """
        now = time.monotonic()
        loss = float(self.losses) / max(self.updates, 1)
        if not math.isfinite(loss):
            raise AttentError(f"the loss is no longer finite at update {update}; a smaller learning_rate may help")
        speed = self.tokens / max(now - self.recorded, 1e-9)
        self.recorded, self.losses, self.updates, self.tokens = now, torch.zeros_like(self.losses), 0, 0
        return {
            "update": update,
            "loss": loss,
            "tokens_per_second": speed,
            "learning_rate": learning_rate,
            "seconds": now - self.started,
        }
