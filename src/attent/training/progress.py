"""Training progress: loss and speed of the last updates, the line that shows them, and the loggers that record them.

TensorBoard, Weights & Biases and MLflow stand behind one small interface; each is an optional dependency.
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

# Seconds between records; reading the loss for a record synchronizes with an accelerator.
RECORD_INTERVAL = 1.0
# Seconds between lines written to a file; on a terminal each record rewrites the line.
LINE_INTERVAL = 5.0
# The time that is left is shown after this share of training, or after so many updates and seconds: before, it is no
# estimate.
ESTIMATE_SHARE, ESTIMATE_UPDATES, ESTIMATE_SECONDS = 0.01, 10, 5.0

# A consumer of log records.
Log = Callable[[Mapping[str, Any]], None]
FOLDER = "tensorboard"
# The file of the run folder that holds the ids of runs elsewhere, by logger, so that a resumed training goes on writing
# to them.
IDS = "loggers.json"
# Bytes that it may have, and what an id may be.
LARGEST, ID = 2**12, re.compile(r"[\w-]{1,128}", re.ASCII)
PROJECT = "attent"
# What is imported for each logger, and what it is called.
MODULES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
TITLES = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases", "mlflow": "MLflow"}


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


class Logger(Protocol):
    """Writes the scalars of a training somewhere."""

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write numbers by name, such as "training/loss", after an update."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


class TensorBoard:
    """Writes events into the folder `tensorboard` of the run.

    Args:
        run: the run folder.
        update: the update that training resumes from; later events are purged.
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
    """Writes a run of the project "attent", called as the run folder.

    wandb's own environment variables say where to and how.

    Args:
        run: the run folder.
        update: the update that training resumes from; what was written after it stays as it is.
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
    """Writes a run called as the run folder; MLflow's own environment variables say where to and in which experiment.

    Args:
        run: the run folder.
        update: the update that training resumes from; what is written again stands there twice, under the same update.
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
    """Return the id of the run that a logger wrote for a run folder; None if there is none, or the file was spoilt."""
    try:
        ids = bounded.read_json(run / IDS, LARGEST)
    except (OSError, DataError):
        return None
    run_id = ids.get(name) if isinstance(ids, dict) else None
    return run_id if isinstance(run_id, str) and ID.fullmatch(run_id) else None


def write_id(run: Path, name: str, run_id: str) -> None:
    """Keep the id of a logger's run in the run folder, beside those of other loggers."""
    ids = {logger: value for logger in LOGGERS if (value := read_id(run, logger))}
    durable.write_text(run / IDS, json.dumps(ids | {name: run_id}) + "\n")


def check_installed(names: Sequence[str]) -> None:
    """Check that the libraries of loggers are installed.

    Raises:
        ArgumentError: one is missing.
    """
    for name in names:
        with needs(f"--log {name} needs {TITLES[name]}", name, ArgumentError):
            import_module(MODULES[name])


@contextmanager
def open_loggers(
    names: Sequence[str], run: Path | str, update: int = 0
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Open loggers, and close them when the block ends.

    The value is the function that writes a record of training to all of them.

    Args:
        names: of the loggers.
        run: the run folder.
        update: the update that training resumes from.

    Raises:
        ArgumentError: a library is missing, or refuses to begin.
    """
    check_installed(names)
    with ExitStack() as stack:
        loggers: list[Logger] = []
        for name in names:
            try:
                loggers.append(LOGGERS[name](Path(run), update))
            # each library has errors of its own, such as one about a missing login
            except Exception as error:
                raise ArgumentError(f"--log {name}: {TITLES[name]} cannot begin: {error}") from error
            stack.callback(loggers[-1].close)

        def write(record: Mapping[str, Any]) -> None:
            if "update" in record:
                for logger in loggers:
                    logger.log(record["update"], scalars(record))

        yield write


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a record of training, by name."""
    training = {
        f"training/{name}": value for name, value in record.items() if name not in ("update", "validation", "samples")
    }
    return training | {f"validation/{name}": value for name, value in record.get("validation", {}).items()}
