"""Training progress: loss and speed of recent updates, the status line that shows them, and TensorBoard's events."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from attent.errors import ArgumentError, AttentError, needs, printable

# Seconds between records; reading the loss for a record waits for an accelerator.
RECORD_INTERVAL = 1.0
# Seconds between lines written to a file; on a terminal each record rewrites the line.
LINE_INTERVAL = 5.0
# The remaining time is shown after this share of training, or after this number of updates and seconds; before that it
# cannot be estimated.
ESTIMATE_SHARE, ESTIMATE_UPDATES, ESTIMATE_SECONDS = 0.01, 10, 5.0

# A consumer of log records.
Log = Callable[[Mapping[str, Any]], None]
# The folder of events in the run folder, and the extra that writes them.
FOLDER = "tensorboard"
# The module that writes events.
MODULE = "torch.utils.tensorboard"


def format_duration(seconds: float) -> str:
    """Format seconds as m:ss, or as h:mm:ss from one hour."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Progress:
    """A status line, which is rewritten in place on a terminal and repeated every few seconds elsewhere.

    Args:
        stream: the output stream; standard error by default, since standard output is for results.
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
            unit: the unit over which the loss is averaged, such as "token".
        """
        now = time.monotonic()
        if not self.is_terminal and fraction_done < 1 and now - self.last_shown < LINE_INTERVAL:
            return
        self.last_shown = now
        seconds, update = record["seconds"], record["update"]
        is_estimate = fraction_done >= ESTIMATE_SHARE or (update >= ESTIMATE_UPDATES and seconds >= ESTIMATE_SECONDS)
        remaining = (
            f", {format_duration(seconds * max(1 / fraction_done - 1, 0))} left"
            if is_estimate and fraction_done > 0
            else ""
        )
        line = (
            f"update {update}  loss {record['loss']:.4f} nats/{unit}  {record['tokens_per_second']:,.0f} {unit}s/s  "
            f"rate {record['learning_rate']:.2e}  {format_duration(seconds)} elapsed{remaining}"
        )
        # The escape sequence clears the rest of a longer previous line.
        self._write(f"\r{line}\x1b[K" if self.is_terminal else f"{line}\n")

    def say(self, line: str) -> None:
        """Write a line that is not overwritten."""
        line = printable(line)
        self._write(f"\r{line}\x1b[K\n" if self.is_terminal else f"{line}\n")

    def say_scores(self, update: int, scores: Mapping[str, float]) -> None:
        """Write the scores of a validation."""
        if scores:
            self.say(f"update {update}  " + "  ".join(f"{name} {score:.4g}" for name, score in scores.items()))

    def close(self) -> None:
        """End the status line."""
        if self.is_terminal and self.last_shown > float("-inf"):
            self._write("\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


class SilentProgress(Progress):
    """A status line that shows nothing."""

    def _write(self, text: str) -> None:
        """Write nothing."""


class Meter:
    """Accumulates loss and tokens between two records.

    Args:
        device: the device of the losses.
        seconds: the time already spent, if training is resumed.
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
            loss: a scalar in nats per token; it stays on its device so that the update need not wait.
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


def check_installed(log: str | None) -> None:
    """Check that TensorBoard is installed if it is the logger.

    Raises:
        ArgumentError: it is missing.
    """
    if log is not None:
        with needs("--log tensorboard needs TensorBoard", FOLDER, ArgumentError):
            import_module(MODULE)


@contextmanager
def open_logger(log: str | None, run: Path | str, update: int = 0) -> Iterator[Log]:
    """Open a logger, yield a function that writes a training record to it, and close it after the block.

    Args:
        log: "tensorboard", which writes events into the folder `tensorboard` of the run; None for no logger.
        run: the run folder.
        update: the update from which training resumes; later events are purged.

    Raises:
        ArgumentError: TensorBoard is missing.
    """
    check_installed(log)
    if log is None:
        yield lambda record: None
        return
    module: Any = import_module(MODULE)
    with module.SummaryWriter(str(Path(run) / FOLDER), purge_step=update + 1) as writer:

        def write(record: Mapping[str, Any]) -> None:
            if "update" in record:
                for name, value in scalars(record).items():
                    writer.add_scalar(name, value, record["update"])
                writer.flush()

        yield write


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the scalars of a training record by name."""
    training = {
        f"training/{name}": value for name, value in record.items() if name not in ("update", "validation", "samples")
    }
    return training | {f"validation/{name}": value for name, value in record.get("validation", {}).items()}
