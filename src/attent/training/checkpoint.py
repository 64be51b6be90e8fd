"""Checkpoints, from which training goes on as if it had never been interrupted.

    RUN/checkpoints/00001500/
        model.safetensors        the weights in training
        optimizer.safetensors    the optimizer's moments and steps
        average.safetensors      what the mean of the weights is made of, if there is one
        kept.safetensors         the weights that would be kept, if they are not those in training
        state.json               everything else: position in the data, random numbers, time, scores

A checkpoint appears at once, when all of it is durable; the one before it is removed only then.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from attent.bounded import read_text
from attent.errors import DataError, RunError, first_fault
from attent.models.model import Model
from attent.runs.durable import draft_of, new_file, new_folder, sweep
from attent.runs.folder import MODEL
from attent.runs.weights import fill, fitting, read_tensors, tensors_of, write_tensors
from attent.training.autotune import ComputeConfig
from attent.training.averaging import WeightAverage
from attent.training.distributed import SINGLE_PROCESS, Processes, is_peer_loss
from attent.training.early_stopping import EarlyStoppingState
from attent.training.optimizer import optimizer_state, restore_optimizer
from attent.training.settings import TrainingSettings

CHECKPOINTS, OPTIMIZER, AVERAGE, AVERAGED_MODEL, STATE = (
    "checkpoints",
    "optimizer.safetensors",
    "average.safetensors",
    "kept.safetensors",
    "state.json",
)


# Bytes that a state.json may have.
MAX_STATE_BYTES = 2**22


class TrainingState(BaseModel):
    """Where training stands, apart from weights, moments and means.

    Args:
        update: updates done.
        place: the epoch and the batch in it that comes next.
        seconds: spent so far, over all the processes that took part.
        loss: the last one recorded, in nats per token.
        pace: the precision and the number of threads.
        verdict: what validations have led to.
        log: how many bytes of the log belong to it.
        random: the states of torch's generators in hexadecimal, by device.
        device: the kind of device.
        torch: its version.
        processes: how many trained together.
        sharded: whether they divided the weights among them.
    """

    model_config = ConfigDict(extra="forbid")

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
    sharded: bool = False


class Checkpoints:
    """The checkpoints of one run, and the weights that translate, which are those of one of them.

    Args:
        run: the run folder.
        settings: how many are kept.
        logged: makes the log durable and returns its length in bytes.
    """

    def __init__(self, run: Path | str, settings: TrainingSettings, sync_log: Callable[[], int] = lambda: 0) -> None:
        self.run, self.settings, self.sync_log = Path(run), settings, sync_log
        self.folder = self.run / CHECKPOINTS
        self._published: Path | None = None

    def save(self, state: TrainingState, contents: Iterable[tuple[str, Mapping[str, Tensor]]] | None) -> None:
        """Write a checkpoint, remove those that are no longer wanted, and put the best weights into the run folder.

        Args:
            state: where training stands.
            contents: as `contents_of` yields them; None where they are in a checkpoint of this update, whose state alone changes.

        Raises:
            RunError: it cannot be written; the checkpoints before it stay.
        """
        state.log, state.random = self.sync_log(), _rng_states(state.device)
        place, text = self.folder / f"{state.update:08}", state.model_dump_json(indent=2) + "\n"
        if contents is None:
            with new_file(place / STATE) as file:
                file.write_text(text, encoding="utf-8")
        else:
            with new_folder(place) as draft:
                for name, tensors in contents:
                    write_tensors(tensors, draft / name)
                (draft / STATE).write_text(text, encoding="utf-8")
        self._evict(state.verdict)
        self.publish(state.verdict)

    def last_state(self) -> TrainingState | None:
        """Where training stood at the last checkpoint; None where there is none.

        Raises:
            RunError: the checkpoint is damaged.
        """
        sweep(self.folder)
        last = latest_checkpoint(self.run)
        if last is None:
            return None
        sweep(last)
        return read_state(last)

    def publish(self, verdict: EarlyStoppingState) -> int:
        """Put the weights of the best checkpoint, or else of the last, into the run folder.

        Returns:
            The update that they are of.
        """
        chosen = latest_checkpoint(self.run)
        if verdict.best and self.settings.keep_best:
            best = self.folder / f"{verdict.best[0][1]:08}"
            chosen = best if best.is_dir() else chosen
        assert chosen is not None
        if chosen != self._published:
            with new_file(self.run / MODEL) as file:
                shutil.copyfile(weights_file(chosen), file)
            self._published = chosen
        return int(chosen.name)

    def _evict(self, verdict: EarlyStoppingState) -> None:
        there = list_checkpoints(self.run)
        best = {update for _, update in verdict.best[: self.settings.keep_best]}
        for path in there[: -self.settings.keep_last]:
            if int(path.name) not in best and (path / STATE).is_file():
                # Out of sight first: what is half removed would look like a checkpoint.
                aside = draft_of(path)
                path.rename(aside / path.name)
                shutil.rmtree(aside, ignore_errors=True)


def checkpoint_files(
    model: Model, optimizer: torch.optim.Adam, average: WeightAverage, processes: Processes
) -> Iterator[tuple[str, Mapping[str, Tensor]]]:
    """A checkpoint's files of tensors by name, one after another; where weights are divided, all processes have to go through them."""
    yield MODEL, processes.full_tensors(tensors_of(model))
    yield OPTIMIZER, processes.full_tensors(optimizer_state(optimizer, dict(model.named_parameters())))
    if average.settings.averaging != "none":
        yield AVERAGE, processes.full_tensors(average.state())
        with average.average_parameters():
            yield AVERAGED_MODEL, processes.full_tensors(tensors_of(model))


def restore(
    checkpoints: Checkpoints | None, model: Model, optimizer: torch.optim.Adam, average: WeightAverage, processes: Processes
) -> TrainingState | None:
    """Go on from the first process' last checkpoint; the others' checkpoints are not looked at.

    Returns:
        Where training stands; None where there is no checkpoint, and nothing has changed.

    Raises:
        RunError: the checkpoint is damaged.
    """
    found = checkpoints.last_state() if checkpoints else None
    known = processes.from_rank0(lambda: None if found is None else found.model_dump(mode="json"))
    if known is None:
        return None
    state = TrainingState.model_validate(known)
    last = latest_checkpoint(checkpoints.run) if checkpoints and found else None
    try:
        _load_tensors(model, optimizer, average, processes, last)
        if last:
            _restore_rng(state.random, next(model.parameters()).device.type)
    except (KeyError, ValueError, RuntimeError) as error:
        if last is None or is_peer_loss(error):
            raise
        raise RunError(f"{last} is damaged: {error}") from error
    if checkpoints and last:
        checkpoints.publish(state.verdict)
    return state


def _load_tensors(model: Model, optimizer: torch.optim.Adam, average: WeightAverage, processes: Processes, last: Path | None) -> None:
    """Put what a checkpoint holds in its places, as far as this process needs it; the first one alone knows which it is."""
    places, weights = tensors_of(model), dict(model.named_parameters())
    found = processes.broadcast_tensors(fitting(places, last / MODEL) if last else {}, places.__getitem__)
    with torch.no_grad():
        for name, tensor in found.items():
            places[name].copy_(tensor)

    def weight(name: str) -> nn.Parameter:
        return weights[name.rpartition("/")[0]]

    found = processes.broadcast_tensors(read_tensors(last / OPTIMIZER, weight) if last else {}, weight)
    restore_optimizer(optimizer, weights, found)
    if average.settings.averaging != "none":
        # means that are not divided are the first one's alone
        among = processes if processes.sharded else SINGLE_PROCESS
        average.restore(among.broadcast_tensors(read_tensors(last / AVERAGE, average.parameter_of) if last else {}, average.parameter_of))


def list_checkpoints(run: Path | str) -> list[Path]:
    """The checkpoints in a run folder, the oldest first."""
    folder = Path(run) / CHECKPOINTS
    return sorted((path for path in folder.glob("*") if re.fullmatch("[0-9]{8,}", path.name)), key=lambda path: int(path.name))


def latest_checkpoint(run: Path | str) -> Path | None:
    """The last checkpoint in a run folder, if there is one."""
    return next(reversed(list_checkpoints(run)), None)


def best_checkpoints(run: Path | str) -> list[Path]:
    """The best checkpoints that are kept in a run folder, the best one first.

    Raises:
        RunError: the last checkpoint, which knows the scores, is damaged.
    """
    there = {int(path.name): path for path in list_checkpoints(run)}
    if not there:
        return []
    return [there[update] for _, update in read_state(there[max(there)]).verdict.best if update in there]


def weights_file(checkpoint: Path) -> Path:
    """The file with the weights that a checkpoint would keep."""
    return checkpoint / AVERAGED_MODEL if (checkpoint / AVERAGED_MODEL).is_file() else checkpoint / MODEL


def read_state(checkpoint: Path) -> TrainingState:
    """The state.json of a checkpoint.

    Raises:
        RunError: it is missing or damaged.
    """
    file = checkpoint / STATE
    try:
        return TrainingState.model_validate_json(read_text(file, MAX_STATE_BYTES))
    except ValidationError as error:
        raise RunError(f"{file} is damaged: {first_fault(error)}") from error
    except (OSError, DataError) as error:
        raise RunError(f"{file} is missing or damaged: {error}") from error


def average_checkpoints(files: list[Path], model: nn.Module) -> None:
    """Put the mean of the weights in several files in the place of a model's.

    Source: Vaswani et al. (2017), §6.1, arXiv 1706.03762.

    Raises:
        RunError: one of them is missing or damaged, or does not fit.
    """
    places = tensors_of(model)
    sums: dict[str, Tensor] = {}
    for file in files:
        fill(places, file)
        sums = {name: place.detach().double() + sums.get(name, 0) for name, place in places.items()}
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(sums[name] / len(files))


def _rng_states(device: str) -> dict[str, str]:
    states = {"cpu": torch.get_rng_state()}
    if device != "cpu":
        states[device] = torch.get_device_module(device).get_rng_state()
    return {name: bytes(state.tolist()).hex() for name, state in states.items()}


def _restore_rng(random: Mapping[str, str], here: str) -> None:
    """Go on drawing where a checkpoint stopped; the state of a device that does not compute here is left aside."""
    for device, numbers in random.items():
        generator = torch.tensor(list(bytes.fromhex(numbers)), dtype=torch.uint8)
        if device == "cpu":
            torch.set_rng_state(generator)
        elif device == here:
            torch.get_device_module(device).set_rng_state(generator)
