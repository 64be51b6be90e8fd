"""Training progress: loss and speed of the last updates, and the line that shows them."""

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

# Seconds between records; reading the loss for a record synchronizes with an accelerator.
RECORD_INTERVAL = 1.0
# Seconds between lines written to a file; on a terminal each record rewrites the line.
LINE_INTERVAL = 5.0
# The time that is left is shown after this share of training, or after so many updates and seconds: before, it is no
# estimate.
ESTIMATE_SHARE, ESTIMATE_UPDATES, ESTIMATE_SECONDS = 0.01, 10, 5.0

# A consumer of log records.
Log = Callable[[Mapping[str, Any]], None]


def format_duration(seconds: float) -> str:
    """Format seconds as m:ss, or h:mm:ss from an hour on."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Progress:
    """A status line, rewritten on a terminal and repeated every few seconds elsewhere.

    Args:
        stream: where to write; standard error by default, since standard output is for results.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.is_terminal = self.stream.isatty()
        self.last_shown = float("-inf")

    def show(self, record: Mapping[str, float], fraction_done: float, unit: str = "token") -> None:
        """Show a record of the log.

        Args:
            record: see `Meter.pop_record`.
            fraction_done: the progress of training, 0 to 1, from which the remaining time is extrapolated.
            unit: what the loss is averaged over.
        """
        now = time.monotonic()
        if not self.is_terminal and fraction_done < 1 and now - self.last_shown < LINE_INTERVAL:
            return
        self.last_shown = now
        seconds, update = record["seconds"], record["update"]
        is_estimate = fraction_done >= ESTIMATE_SHARE or (update >= ESTIMATE_UPDATES and seconds >= ESTIMATE_SECONDS)
        remaining = (
            f", {format_duration(seconds * (1 / fraction_done - 1))} left" if is_estimate and fraction_done > 0 else ""
        )
        line = (
            f"update {update}  loss {record['loss']:.4f} nats/{unit}  {record['tokens_per_second']:,.0f} {unit}s/s  "
            f"rate {record['learning_rate']:.2e}  {format_duration(seconds)} elapsed{remaining}"
        )
        # The escape clears the rest of a longer previous line.
        self._write(f"\r{line}\x1b[K" if self.is_terminal else f"{line}\n")

    def say(self, line: str) -> None:
        """Write a permanent line."""
        line = printable(line)
        self._write(f"\r{line}\x1b[K\n" if self.is_terminal else f"{line}\n")

    def say_scores(self, update: int, scores: Mapping[str, float]) -> None:
        """Write the scores of a validation."""
        if scores:
            self.say(f"update {update}  " + "  ".join(f"{name} {score:.4g}" for name, score in scores.items()))

    def close(self) -> None:
        """End the line that was being rewritten."""
        if self.is_terminal and self.last_shown > float("-inf"):
            self._write("\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


class SilentProgress(Progress):
    """A status line that shows nothing."""

    def _write(self, text: str) -> None:
        pass


class Meter:
    """Accumulates loss and tokens between two records.

    Args:
        device: of the losses.
        seconds: already spent, where training is resumed.
    """

    def __init__(self, device: torch.device, seconds: float = 0.0) -> None:
        self.recorded = time.monotonic()
        self.start = self.recorded - seconds
        self.losses, self.updates, self.tokens = torch.zeros((), device=device), 0, 0

    @property
    def seconds(self) -> float:
        """Seconds since the start of training."""
        return time.monotonic() - self.start

    @property
    def is_due(self) -> bool:
        """True when it is time for the next record."""
        return self.updates > 0 and time.monotonic() - self.recorded > RECORD_INTERVAL

    def add(self, loss: Tensor, tokens: int) -> None:
        """Add an update.

        Args:
            loss: a scalar in nats per token; it stays on its device, so that the update need not wait.
            tokens: the number of target tokens.
        """
        self.losses, self.updates, self.tokens = self.losses + loss.detach(), self.updates + 1, self.tokens + tokens

    def pop_record(self, update: int, learning_rate: float) -> dict[str, float]:
        """Return the mean loss in nats per token and the speed since the last record.

        Raises:
            AttentError: the loss is not finite.
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
            "seconds": now - self.start,
        }
