"""Loggers of training: TensorBoard, Weights & Biases and MLflow behind one small interface.

Each is an optional dependency.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from attent import bounded
from attent.errors import ArgumentError, DataError, needs
from attent.runs import durable

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
