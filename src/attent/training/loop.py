"""The training loop, to be read from top to bottom."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from attent.data.batches import BatchSize, Examples
from attent.devices import described
from attent.errors import AttentError
from attent.models.model import Model
from attent.runs.folder import MODEL
from attent.runs.weights import fill, tensors_of
from attent.training.autotune import ComputeConfig, Precision, autotune, candidates
from attent.training.averaging import WeightAverage, evaluation_weights
from attent.training.checkpoint import Checkpoints, TrainingState, checkpoint_files, restore
from attent.training.distributed import SINGLE_PROCESS, Processes, silent_progress
from attent.training.early_stopping import EarlyStopping
from attent.training.interruption import deferred_interrupt
from attent.training.loss import LossFunction, translation_loss
from attent.training.memory import limit_heap
from attent.training.optimizer import SCHEDULES, build_optimizer, fraction_done
from attent.training.progress import Log, Meter, Progress
from attent.training.settings import TrainingSettings

Validate = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class TrainingResult:
    """What training did.

    Args:
        updates: how many updates there were.
        kept: the update whose weights are kept.
        seconds: how long they took, validation included.
        loss: the mean training loss since the last record before the end, in nats per token; None without an update.
        precision: the precision used.
        threads: how many threads computed.
        device: what computed, such as "cpu".
        validation: what the validation of the weights that are kept returned.
    """

    updates: int
    kept: int
    seconds: float
    loss: float | None
    precision: Precision
    threads: int
    device: str
    validation: dict[str, float]


def train(
    model: Model,
    data: Examples[Any],
    settings: TrainingSettings,
    *,
    loss: LossFunction = translation_loss,
    validate: Validate = dict,
    log: Log = lambda record: None,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
    processes: Processes = SINGLE_PROCESS,
) -> TrainingResult:
    """Train a model in place; it ends in evaluation mode, with the weights that are kept.

    With checkpoints these are the best ones, or the last ones if the settings keep no best; and training goes on from
    the last checkpoint if there is one. Without them they are the last ones. Either way they are the mean that the
    settings ask for.

    Args:
        model: one that the loss knows.
        data: what to learn, in batches that the loss knows.
        settings: how.
        loss: of a batch; a translator's unless given.
        validate: called with the model in evaluation mode and the weights that would be kept; returns scores by name.
        log: gets each record: about every second, after each validation, and at the end.
        progress: where a person sees it; standard error unless said otherwise.
        checkpoints: where training is saved.
        processes: those that train together, each of which calls this with the same model, data and settings. The first
            one alone validates, logs, shows and saves, and ends with the weights that are kept; where weights are divided, the
            models of the others end empty.

    The number of threads that training chooses stays that of the process.

    Raises:
        DataError: there is nothing to learn.
        RunError: a checkpoint cannot be written, or is damaged; another process has other data.
        AttentError: the loss, a weight or a score of validation is no longer finite.
        KeyboardInterrupt: after Ctrl-C, once everything is saved.
    """
    progress = progress or Progress()
    training = Training(model, data, settings, validate, log, progress, checkpoints, processes, loss)
    with deferred_interrupt() as interruption:
        while training.should_continue(interruption.is_requested):
            training.train_step()
            if training.meter.due:
                training.record()
            if validating := training.every(settings.validate_every):
                training.validate()
            if validating or training.every(settings.save_every):
                training.save()
        if training.is_stop_requested:
            training.interrupt()
    return training.finish()


class Training:
    """A training under way: what the loop is made of; the arguments are those of `train`."""

    def __init__(
        self,
        model: Model,
        data: Examples[Any],
        settings: TrainingSettings,
        validate: Validate,
        log: Log,
        progress: Progress,
        checkpoints: Checkpoints | None,
        processes: Processes = SINGLE_PROCESS,
        loss: LossFunction = translation_loss,
    ) -> None:
        if settings.sharded and processes.world_size == 1:
            progress.say("one process alone has nobody to divide its weights with: it holds them all")
        elif settings.sharded:
            # here, as what it imports takes a second
            from attent.training.sharding import Sharded

            processes = Sharded(processes.rank, processes.world_size)
        if not processes.is_rank0:
            # what is judged, saved and shown is the first one's
            checkpoints, log, progress = None, lambda record: None, silent_progress()
            if not processes.sharded:
                settings = settings.model_copy(update={"averaging": "none"})
        self.model, self.settings, self.checkpoints, self.processes = model, settings, checkpoints, processes
        self._validate, self._log, self._progress = validate, log, progress
        model.train()
        self.module = processes.prepare_model(model, loss)
        # those of frozen embeddings stay as they are
        self.parameters = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        self.device = self.parameters[0].device
        self.schedule = SCHEDULES[settings.schedule]
        self.optimizer = build_optimizer(self.parameters, settings)
        self.average = WeightAverage(self.parameters, settings)
        torch.manual_seed(settings.seed)
        if self.device.type == "cpu":
            limit_heap()
        size = BatchSize(settings.batch_pairs, settings.batch_tokens)
        processes.check_same_data(data)
        found = restore(checkpoints, self.module, self.optimizer, self.average, processes)
        # Whether there is anything that the last checkpoint does not hold, and the update whose weights it holds.
        self.has_unsaved, self.saved_update = found is None, None if found is None else found.update
        # Where weights are divided all have to take part in a checkpoint.
        self.can_save = processes.from_rank0(lambda: checkpoints is not None) and (processes.is_rank0 or processes.sharded)
        self.batch_loss = processes.batch_loss(self.module, loss)
        here = TrainingState(
            pace=ComputeConfig("float32", 1), device=self.device.type, processes=processes.world_size, sharded=processes.sharded
        )
        if found is None:
            batch = processes.next_part(data.stream(size, settings.seed))[0].to(self.device)
            paces = [ComputeConfig(*pace) for pace in processes.from_rank0(lambda: candidates(settings, self.device))]
            pace = autotune(lambda way: self._gradients(batch, way), paces, self.device, log, progress, processes.from_rank0)
            here.pace = ComputeConfig(*processes.from_rank0(lambda: pace))
            found = here
        else:
            for line in resume_messages(found, here, settings):
                progress.say(line)
        self.state = found
        torch.set_num_threads(found.pace.threads)
        self.early_stopping = EarlyStopping(settings, found.verdict)
        self.batches = data.stream(size, settings.seed, found.place)
        self.meter = Meter(self.device, found.seconds)
        self.rate, self.is_stop_requested, self.seconds = 0.0, False, found.seconds

    def _gradients(self, batch: Any, precision: Precision) -> None:
        self.batch_loss(batch, self.settings.label_smoothing, precision)[0].backward()
        self.module.zero_grad()

    @property
    def fraction_done(self) -> float:
        """How much of training is over, 0 to 1."""
        return fraction_done(self.settings, self.state.update, self.seconds)

    def should_continue(self, asked: bool) -> bool:
        """Whether there is another update, on which all processes agree: nobody was asked to stop, and no limit is reached."""
        self.is_stop_requested, self.seconds = self.processes.sync_stop(asked, self.meter.seconds)
        return not (self.is_stop_requested or self.early_stopping.should_stop) and self.fraction_done < 1

    def every(self, every: int | None) -> bool:
        """Whether this update is one of every so many."""
        return every is not None and self.state.update % every == 0

    def train_step(self) -> None:
        """One update."""
        settings, done = self.settings, self.fraction_done
        self.state.update += 1
        self.has_unsaved = True
        self.processes.seed_rank(settings.seed, self.state.update)
        parts = [self.processes.next_part(self.batches) for _ in range(settings.accumulate)]
        tokens = sum(whole for _, whole in parts)
        total, width = torch.zeros((), device=self.device), 1
        for turn, (batch, _) in enumerate(parts, start=1):
            with nullcontext() if turn == len(parts) else self.processes.no_sync(self.batch_loss):
                loss, width = self.batch_loss(batch.to(self.device), settings.label_smoothing, self.state.pace.precision)
                loss = loss * (batch.tokens / tokens)
                loss.backward()
            total = total + loss.detach()
        if settings.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, settings.clip)
        factor = self.schedule(self.state.update, done, settings.warmup, width) * self.early_stopping.state.scale
        self.rate = settings.learning_rate * factor
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.average.add(self.state.update)
        self.meter.add(self.processes.all_reduce(total), tokens)

    def record(self, done: float | None = None) -> None:
        """Log and show what was learnt since the last record, if anything was."""
        if not self.meter.updates:
            return
        record = self.meter.record(self.state.update, self.rate)
        self.state.loss = record["loss"]
        self._log(record)
        self._progress.show(record, self.fraction_done if done is None else done, self.batches.data.answer_name)

    def validate(self) -> None:
        """Judge the weights that would be kept."""
        with evaluation_weights(self.model, self.average), self.processes.full_parameters(self.model):
            scores = self.processes.from_rank0(lambda: dict(self._validate()))
        for name, score in scores.items():
            if not math.isfinite(score):
                raise AttentError(f"validation's {name} is {score} at update {self.state.update}; a smaller learning_rate may help")
        self.has_unsaved = True
        self._log({"update": self.state.update, "seconds": self.meter.seconds, "validation": scores})
        self._progress.say_scores(self.state.update, scores)
        self.early_stopping.step(self.state.update, scores)

    def save(self, done: float | None = None) -> None:
        """Write a checkpoint, if there is something new and a place for it."""
        if not self.can_save or not self.has_unsaved:
            return
        self.record(done)
        self._check_finite()
        self.state.place, self.state.seconds = self.batches.position, self.meter.seconds
        # Saved before their validation, the weights are the same.
        new = self.saved_update != self.state.update
        contents = checkpoint_files(self.module, self.optimizer, self.average, self.processes) if new else None
        if self.checkpoints:
            self.checkpoints.save(self.state, contents)
        else:
            deque(contents or (), maxlen=0)
        self.has_unsaved, self.saved_update = False, self.state.update

    def _check_finite(self) -> None:
        """Check that no weight is lost, before a checkpoint with it takes the place of the one before."""
        for parameter in self.parameters:
            # of divided weights those that are here
            of_here = getattr(parameter, "to_local", None)
            here = parameter if of_here is None else of_here()
            if not bool(here.isfinite().all()):
                raise AttentError(f"a weight is no longer finite at update {self.state.update}; a smaller learning_rate may help")

    def interrupt(self) -> None:
        """Save after Ctrl-C, say how to go on, and pass it on."""
        self.save()
        self._progress.close()
        if self.checkpoints:
            self._progress.say(f"saved after update {self.state.update}; to go on: attent train --resume {self.checkpoints.run}")
        # A launcher ends them all when the first of them ends.
        self.processes.barrier()
        raise KeyboardInterrupt

    def finish(self) -> TrainingResult:
        """Judge the last weights, save, and leave those that are kept in the model."""
        self.record(1.0)
        if self.early_stopping.should_stop:
            self._progress.say(f"nothing better in {self.early_stopping.state.waiting} validations: training ends")
        state, kept = self.state, self.state.update
        if self.early_stopping.state.validated != state.update:
            # Validation may take long, and what comes before it shall not be lost.
            self.save(1.0)
            self.validate()
        self.save(1.0)
        self.model.eval()
        if not self.can_save:
            self.average.apply()
        self.processes.restore_model(self.model)
        if self.checkpoints:
            kept = self.checkpoints.publish(self.early_stopping.state)
            fill(tensors_of(self.model), self.checkpoints.run / MODEL)
        self._progress.close()
        scores, device = self.early_stopping.state.scores_of(kept), described(self.device)
        return TrainingResult(state.update, kept, self.meter.seconds, state.loss, *state.pace, device, scores)


def resume_messages(state: TrainingState, here: TrainingState, settings: TrainingSettings) -> Sequence[str]:
    """What a person should know about a run that goes on; the pace is the one it had, unless the settings name another.

    On another number of processes each takes as many threads as it has.

    Args:
        state: where the run stood; it takes over what is different now.
        here: what is different may be found in it, but for the pace.
        settings: of training.
    """
    threads = state.pace.threads if here.processes == state.processes else torch.get_num_threads()
    here.pace = ComputeConfig(state.pace.precision, threads if settings.threads == "auto" else settings.threads)
    places = [(str(here.pace), str(state.pace)), (f"torch {here.torch}", f"torch {state.torch}"), (here.device, state.device)]
    if here.processes != state.processes:
        places.append((_counted(here.processes), _counted(state.processes)))
    places.append((_held(here.sharded), _held(state.sharded)))
    # another number of processes also draws other numbers for dropout
    digits = "" if here.processes != state.processes else " in their last digits"
    changed = [f"{this} instead of {that}" for this, that in places if this != that]
    for name in ("pace", "torch", "device", "processes", "sharded"):
        setattr(state, name, getattr(here, name))
    lines = [f"going on after update {state.update}"]
    if changed:
        lines.append(f"warning: with {', '.join(changed)}, weights will differ{digits} from those of an unbroken run")
    return lines


def _held(sharded: bool) -> str:
    return "divided weights" if sharded else "whole weights"


def _counted(processes: int) -> str:
    return f"{processes} process{'es' if processes > 1 else ''}"
