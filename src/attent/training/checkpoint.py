"""Checkpoints, from which training resumes as if it had not been interrupted.

    RUN/checkpoints/00001500/
        model.safetensors        the current weights
        optimizer.safetensors    the optimizer's moments and steps
        average.safetensors      the tensors from which the average is computed, if weights are averaged
        kept.safetensors         the averaged weights, if weights are averaged
        state.json               everything else: position in the data, random states, time, scores

A checkpoint is renamed into place once all its files are synced; only then are older ones removed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ValidationError, model_validator
from torch import Tensor, nn

from attent.attention.backends.heuristics import ROWS, MachineRow
from attent.bounded import read_text
from attent.errors import DataError, RunError, reraise
from attent.models.model import Model
from attent.runs.durable import draft_of, new_file, new_folder, sweep, write_text
from attent.runs.folder import MODEL
from attent.runs.weights import fitting, read_tensors, tensors_of, write_tensors
from attent.training.autotune import ComputeConfig
from attent.training.distributed import Processes, is_peer_loss
from attent.training.optimizer import EarlyStoppingState, WeightAverage, optimizer_state, restore_optimizer
from attent.training.settings import TrainingSettings

CHECKPOINTS = "checkpoints"
OPTIMIZER = "optimizer.safetensors"
AVERAGE = "average.safetensors"
AVERAGED_MODEL = "kept.safetensors"
STATE = "state.json"
# A larger state.json is damaged.
MAX_STATE_BYTES = 2**22


class TrainingState(BaseModel, extra="forbid"):
    """The state of training, apart from weights, moments and averages.

    Args:
        update: the number of completed updates.
        place: the epoch and the index of its next batch.
        seconds: the training time so far, before and after resuming.
        loss: the last recorded loss in nats per token.
        pace: the precision and the number of threads.
        verdict: the state of early stopping.
        log: the length of the log in bytes.
        random: the states of torch's random generators in hexadecimal, by device.
        device: the type of device.
        torch: the version of PyTorch.
        processes: the number of processes.
        machine: the thresholds that choose how attention is computed; for checkpoints of earlier versions the
            thresholds that these used.
        processor: the class of the processor.
    """

    update: int = 0
    place: tuple[int, int] = (0, 0)
    seconds: float = 0.0
    loss: float | None = None
    pace: ComputeConfig
    verdict: EarlyStoppingState = EarlyStoppingState()
    log: int = 0
    random: dict[str, str] = {}
    device: str
    torch: str = str(torch.__version__)
    processes: int = 1
    machine: MachineRow = replace(ROWS["amx"], onednn=False)
    processor: str = ""

    @model_validator(mode="before")
    @classmethod
    def _without_former(cls, values: Any) -> Any:
        """Leave out what earlier versions wrote: whether weights were sharded."""
        is_table = isinstance(values, dict)
        return {name: value for name, value in values.items() if name != "sharded"} if is_table else values


class Checkpoints:
    """The checkpoints of a run, and the run's model, which is a copy of one checkpoint's weights.

    Args:
        run: the run folder.
        settings: the training settings, which say how many checkpoints to keep.
        sync_log: syncs the log to disk and returns its length in bytes.
    """

    def __init__(self, run: Path | str, settings: TrainingSettings, sync_log: Callable[[], int] = lambda: 0) -> None:
        self.run, self.settings, self.sync_log = Path(run), settings, sync_log
        self.folder = self.run / CHECKPOINTS
        self._published: Path | None = None

    def save(self, state: TrainingState, files: Iterable[tuple[str, Mapping[str, Tensor]]] | None) -> None:
        """Write a checkpoint, remove outdated ones and publish the best weights.

        Args:
            state: the state of training.
            files: see `checkpoint_files`; None if this update's checkpoint exists and only its state has changed.

        Raises:
            RunError: writing failed; earlier checkpoints are preserved.
        """
        state.log, state.random = self.sync_log(), _rng_states(state.device)
        checkpoint, text = self.folder / f"{state.update:08}", state.model_dump_json(indent=2) + "\n"
        if files is None:
            write_text(checkpoint / STATE, text)
        else:
            with new_folder(checkpoint) as draft:
                for name, tensors in files:
                    write_tensors(tensors, draft / name)
                (draft / STATE).write_text(text, encoding="utf-8", newline="")
        self._remove_outdated(state.verdict)
        self.publish_best_weights(state.verdict)

    def last_state(self) -> TrainingState | None:
        """Return the state of the last checkpoint, or None without a checkpoint.

        Raises:
            RunError: the checkpoint is damaged.
        """
        sweep(self.folder)
        checkpoint = latest_checkpoint(self.run)
        if checkpoint is None:
            return None
        sweep(checkpoint)
        return read_state(checkpoint)

    def publish_best_weights(self, early_stopping: EarlyStoppingState) -> int:
        """Copy the weights of the best checkpoint, or of the last if none is kept, to the run's model.

        Returns:
            The number of the update that these weights are from.
        """
        checkpoint = latest_checkpoint(self.run)
        if early_stopping.best and self.settings.keep_best:
            best = self.folder / f"{early_stopping.best[0][1]:08}"
            checkpoint = best if best.is_dir() else checkpoint
        assert checkpoint is not None
        if checkpoint != self._published:
            with new_file(self.run / MODEL) as file:
                shutil.copyfile(weights_file(checkpoint), file)
            self._published = checkpoint
        return int(checkpoint.name)

    def _remove_outdated(self, early_stopping: EarlyStoppingState) -> None:
        best = {update for _, update in early_stopping.best[: self.settings.keep_best]}
        for path in list_checkpoints(self.run)[: -self.settings.keep_last]:
            if int(path.name) not in best and (path / STATE).is_file():
                # Renamed first: a partly removed folder would look like a checkpoint.
                draft = draft_of(path)
                path.rename(draft / path.name)
                shutil.rmtree(draft, ignore_errors=True)


def checkpoint_files(
    model: Model, optimizer: torch.optim.Adam, average: WeightAverage
) -> Iterator[tuple[str, Mapping[str, Tensor]]]:
    """Yield the names and tensors of a checkpoint's files."""
    yield MODEL, tensors_of(model)
    yield OPTIMIZER, optimizer_state(optimizer, dict(model.named_parameters()))
    if average.settings.averaging != "none":
        yield AVERAGE, average.state()
        with average.average_parameters():
            yield AVERAGED_MODEL, tensors_of(model)


def restore(
    checkpoints: Checkpoints | None,
    model: Model,
    optimizer: torch.optim.Adam,
    average: WeightAverage,
    processes: Processes,
) -> TrainingState | None:
    """Restore the last checkpoint of process 0 in all processes.

    Returns:
        The state of training, or None without a checkpoint.

    Raises:
        RunError: the checkpoint is damaged.
    """
    state = checkpoints.last_state() if checkpoints else None
    checkpoint = latest_checkpoint(checkpoints.run) if checkpoints and state else None
    values = processes.from_rank0(lambda: None if state is None else state.model_dump(mode="json"))
    if values is None:
        return None
    restored = TrainingState.model_validate(values)
    try:
        _load_tensors(model, optimizer, average, processes, checkpoint)
        if checkpoint:
            _restore_rng(restored.random, next(model.parameters()).device.type)
    except (KeyError, ValueError, RuntimeError) as error:
        if checkpoint is None or is_peer_loss(error):
            raise
        raise RunError(f"{checkpoint} is damaged: {error}") from error
    if checkpoints and checkpoint:
        checkpoints.publish_best_weights(restored.verdict)
    return restored


def _load_tensors(
    model: Model, optimizer: torch.optim.Adam, average: WeightAverage, processes: Processes, checkpoint: Path | None
) -> None:
    """Load a checkpoint's tensors in all processes; only process 0 has the path."""
    targets, weights = tensors_of(model), dict(model.named_parameters())
    tensors = processes.broadcast_tensors(fitting(targets, checkpoint / MODEL) if checkpoint else {})
    with torch.no_grad():
        for name, tensor in tensors.items():
            targets[name].copy_(tensor)

    def weight(name: str) -> nn.Parameter:
        return weights[name.rpartition("/")[0]]

    moments = read_tensors(checkpoint / OPTIMIZER, weight) if checkpoint else {}
    restore_optimizer(optimizer, weights, processes.broadcast_tensors(moments))
    # only process 0 has an average
    if average.settings.averaging != "none":
        average.restore(read_tensors(checkpoint / AVERAGE, average.parameter_of) if checkpoint else {})


def resume_messages(state: TrainingState, fresh: TrainingState, settings: TrainingSettings) -> Sequence[str]:
    """Return messages for a resumed run, and update its state with what has changed.

    The run keeps its precision and threads, unless the settings specify threads or the number of processes has changed,
    in which case each process uses all its threads.

    Args:
        state: the state of the run; updated in place.
        fresh: the state that a new run would start with; its `pace` is overwritten.
        settings: the training settings.
    """
    threads = state.pace.threads if fresh.processes == state.processes else torch.get_num_threads()
    fresh.pace = ComputeConfig(state.pace.precision, threads if settings.threads == "auto" else settings.threads)
    comparisons = [
        (str(fresh.pace), str(state.pace)),
        (f"torch {fresh.torch}", f"torch {state.torch}"),
        (fresh.device, state.device),
        (_count(fresh.processes), _count(state.processes)),
        (f"{fresh.processor} kernels", f"{state.processor or fresh.processor} kernels"),
    ]
    changes = [f"{new} instead of {old}" for new, old in comparisons if new != old]
    # Another number of processes also changes the random numbers of dropout.
    digits = "" if fresh.processes != state.processes else " in their last digits"
    for name in ("pace", "torch", "device", "processes", "processor"):
        setattr(state, name, getattr(fresh, name))
    lines = [f"resuming after update {state.update}"]
    if changes:
        lines.append(
            f"warning: with {', '.join(changes)}, weights will differ{digits} from those of an uninterrupted run"
        )
    return lines


def _count(processes: int) -> str:
    return f"{processes} process{'es' if processes > 1 else ''}"


def list_checkpoints(run: Path | str) -> list[Path]:
    """Return the checkpoints of a run folder, oldest first."""
    return sorted(
        (path for path in (Path(run) / CHECKPOINTS).glob("*") if re.fullmatch("[0-9]{8,}", path.name)),
        key=lambda path: int(path.name),
    )


def latest_checkpoint(run: Path | str) -> Path | None:
    """Return the last checkpoint of a run folder, or None."""
    return next(reversed(list_checkpoints(run)), None)


def weights_file(checkpoint: Path) -> Path:
    """Return the file of the weights to evaluate: the averaged weights, if any, else the current ones."""
    return checkpoint / AVERAGED_MODEL if (checkpoint / AVERAGED_MODEL).is_file() else checkpoint / MODEL


def read_state(checkpoint: Path) -> TrainingState:
    """Read the state.json of a checkpoint.

    Raises:
        RunError: the file is missing or damaged.
    """
    file = checkpoint / STATE
    with (
        reraise(RunError, f"{file} is damaged", ValidationError),
        reraise(RunError, f"{file} is missing or damaged", OSError, DataError),
    ):
        return TrainingState.model_validate_json(read_text(file, MAX_STATE_BYTES))


def _rng_states(device: str) -> dict[str, str]:
    states = {"cpu": torch.get_rng_state()}
    if device != "cpu":
        states[device] = torch.get_device_module(device).get_rng_state()
    return {name: bytes(state.tolist()).hex() for name, state in states.items()}


def _restore_rng(states: Mapping[str, str], device_type: str) -> None:
    """Restore torch's random generators of the CPU and this type of device; states of other devices are ignored."""
    for device, numbers in states.items():
        state = torch.tensor(list(bytes.fromhex(numbers)), dtype=torch.uint8)
        if device == "cpu":
            torch.set_rng_state(state)
        elif device == device_type:
            torch.get_device_module(device).set_rng_state(state)
