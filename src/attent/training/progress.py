"""Training progress: loss and speed of recent updates, the status line that shows them, and loggers.

TensorBoard, Weights & Biases and MLflow share one small interface; each is an optional dependency.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TextIO

import torch
from torch import Tensor

from attent import bounded
from attent.errors import ArgumentError, AttentError, DataError, needs, printable
from attent.runs import durable

# Seconds between records; reading the loss for a record waits for an accelerator.
RECORD_INTERVAL = 1.0
# Seconds between lines written to a file; on a terminal each record rewrites the line.
LINE_INTERVAL = 5.0
# The remaining time is shown after this share of training, or after this number of updates and seconds; before that it
# cannot be estimated.
ESTIMATE_SHARE, ESTIMATE_UPDATES, ESTIMATE_SECONDS = 0.01, 10, 5.0

# A consumer of log records.
Log = Callable[[Mapping[str, Any]], None]
FOLDER = "tensorboard"
# The file in the run folder with the ids of the loggers' runs, so that a resumed training continues to write to them.
IDS = "loggers.json"
# Maximum size of that file in bytes, and the pattern of a valid id.
LARGEST, ID = 2**12, re.compile(r"[\w-]{1,128}", re.ASCII)
PROJECT = "attent"
# The module to import for each logger, and its display name.
MODULES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
TITLES = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases", "mlflow": "MLflow"}


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
            f", {format_duration(seconds * (1 / fraction_done - 1))} left" if is_estimate and fraction_done > 0 else ""
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
        pass


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


class Logger(Protocol):
    """Interface of loggers, which record the scalars of a training."""

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """Record scalars by name, such as "training/loss", after an update."""
        ...

    def close(self) -> None:
        """Write remaining records and close the logger."""
        ...


class TensorBoard:
    """Writes events into the folder `tensorboard` of the run.

    Args:
        run: the run folder.
        update: the update from which training resumes; later events are purged.
    """

    def __init__(self, run: Path, update: int = 0) -> None:
        writer: Any = import_module(MODULES["tensorboard"])
        self._writer = writer.SummaryWriter(str(run / FOLDER), purge_step=update + 1)

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """Writes a run of the project "attent", named after the run folder.

    The destination is configured with wandb's own environment variables.

    Args:
        run: the run folder.
        update: the update from which training resumes; later records are left as they are.
    """

    def __init__(self, run: Path, update: int = 0) -> None:
        wandb: Any = import_module(MODULES["wandb"])
        run_id = read_id(run, "wandb") if update else None
        options = {"id": run_id, "resume": "allow"} if run_id else {}
        self._run = wandb.init(project=PROJECT, name=run.resolve().name, **options)
        write_id(run, "wandb", self._run.id)

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        self._run.log(dict(scalars), step=step)

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """Writes a run named after the run folder; MLflow's own environment variables set the destination and experiment.

    Args:
        run: the run folder.
        update: the update from which training resumes; records that are written again appear twice for an update.
    """

    def __init__(self, run: Path, update: int = 0) -> None:
        self._mlflow: Any = import_module(MODULES["mlflow"])
        run_id = read_id(run, "mlflow") if update else None
        started = (
            self._mlflow.start_run(run_id=run_id) if run_id else self._mlflow.start_run(run_name=run.resolve().name)
        )
        write_id(run, "mlflow", started.info.run_id)

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(scalars), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


LOGGERS: dict[str, Callable[[Path, int], Logger]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}


def read_id(run: Path, name: str) -> str | None:
    """Return the id of a logger's run for a run folder; None if there is none or the file is damaged."""
    try:
        ids = bounded.read_json(run / IDS, LARGEST)
    except (OSError, DataError):
        return None
    run_id = ids.get(name) if isinstance(ids, dict) else None
    return run_id if isinstance(run_id, str) and ID.fullmatch(run_id) else None


def write_id(run: Path, name: str, run_id: str) -> None:
    """Store the id of a logger's run in the run folder, along with those of other loggers."""
    ids = {logger: value for logger in LOGGERS if (value := read_id(run, logger))}
    durable.write_text(run / IDS, json.dumps(ids | {name: run_id}) + "\n")


def check_installed(names: Sequence[str]) -> None:
    """Check that the libraries of loggers are installed.

    Raises:
        ArgumentError: a library is missing.
    """
    for name in names:
        with needs(f"--log {name} needs {TITLES[name]}", name, ArgumentError):
            import_module(MODULES[name])


@contextmanager
def open_loggers(
    names: Sequence[str], run: Path | str, update: int = 0
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Open loggers, yield a function that writes a training record to all of them, and close them after the block.

    Args:
        names: the names of the loggers.
        run: the run folder.
        update: the update from which training resumes.

    Raises:
        ArgumentError: a library is missing or cannot start.
    """
    check_installed(names)
    with ExitStack() as stack:
        loggers: list[Logger] = []
        for name in names:
            try:
                loggers.append(LOGGERS[name](Path(run), update))
            # each library has its own errors, such as one about a missing login
            except Exception as error:
                raise ArgumentError(f"--log {name}: {TITLES[name]} cannot start: {error}") from error
            stack.callback(loggers[-1].close)

        def write(record: Mapping[str, Any]) -> None:
            if "update" in record:
                for logger in loggers:
                    logger.log(record["update"], scalars(record))

        yield write


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the scalars of a training record by name."""
    training = {
        f"training/{name}": value for name, value in record.items() if name not in ("update", "validation", "samples")
    }
    return training | {f"validation/{name}": value for name, value in record.get("validation", {}).items()}
