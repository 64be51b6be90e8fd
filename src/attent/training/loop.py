"""The training loop, written to be read from top to bottom."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn

from attent.attention.backends.heuristics import MachineRow, current_row, using_row
from attent.devices import described, limit_heap_fragmentation
from attent.errors import AttentError, refuse
from attent.models.model import Model
from attent.ops.eligibility import processor_class
from attent.ops.onednn import prefers_onednn
from attent.runs.folder import MODEL
from attent.runs.weights import fill, tensors_of
from attent.text.batches import BatchSize, Examples
from attent.training.autotune import (
    Budget,
    ComputeConfig,
    Precision,
    autocast,
    autotune,
    benchmark,
    candidates,
    rate_fault,
)
from attent.training.checkpoint import Checkpoints, TrainingState, checkpoint_files, restore, resume_messages
from attent.training.distributed import SINGLE_PROCESS, Processes
from attent.training.loss import LossFunction, translation_cross_entropy
from attent.training.optimizer import (
    SCHEDULES,
    EarlyStopping,
    WeightAverage,
    build_optimizer,
    fraction_done,
    warmup_updates,
)
from attent.training.progress import Log, Meter, Progress, SilentProgress
from attent.training.settings import TrainingSettings

Validate = Callable[[], Mapping[str, float]]
Announce = Callable[[Budget], Iterable[str]]
# Ctrl-C, and the signal sent when a machine shuts down or is reassigned.
SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Number of batches timed before training.
TIMED = 2


@dataclass(frozen=True)
class TrainingResult:
    """The outcome of a training run.

    Args:
        updates: the number of updates.
        kept: the update whose weights the model has.
        seconds: the training time, including validation.
        loss: the mean training loss since the second-to-last record, in nats per token; None without updates.
        precision: the precision of matrix products.
        threads: the number of CPU threads.
        device: the training device, such as "cpu".
        validation: the validation scores of these weights.
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
    loss: LossFunction = translation_cross_entropy,
    validate: Validate = dict,
    announce: Announce = Budget.lines,
    log: Log = lambda record: None,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
    processes: Processes = SINGLE_PROCESS,
) -> TrainingResult:
    """Train a model in place and leave it in evaluation mode.

    With checkpoints, training resumes from the last one, if any, and the model ends up with the weights of the best
    one, unless the settings keep no best checkpoints. Otherwise it ends up with the last weights. Weights are averaged
    if the settings say so.

    Args:
        model: a model that the loss accepts.
        data: examples in batches that the loss accepts.
        settings: the training settings.
        loss: the loss of a batch; by default that of a translator.
        validate: called while the model is in evaluation mode with averaged weights; returns scores by name.
        announce: returns lines to show before a new run begins, given the updates and time that its limits allow.
        log: receives each record: about every second, after each validation, and at the end.
        progress: the status line; on standard error by default.
        checkpoints: the checkpoints of the run; by default nothing is saved.
        processes: the training processes. Each process calls this function with the same model, data and settings; only
            process 0 validates, logs, prints and saves.

    The process keeps the number of threads that training chooses.

    Raises:
        DataError: there are no examples.
        RunError: a checkpoint cannot be written or is damaged, or processes have different data.
        AttentError: the loss, a weight or a validation score is not finite.
        KeyboardInterrupt: after Ctrl-C, once everything is saved.
    """
    progress = progress or Progress()
    training = Training(model, data, settings, validate, log, progress, checkpoints, processes, loss, announce)
    # attention is computed in the same way on any machine on which the run resumes
    with using_row(training.state.machine), deferred_interrupt() as interruption:
        while training.should_continue(interruption.is_set()):
            training.train_step()
            if training.meter.is_due:
                training.log_progress()
            if is_validation := training.every(settings.validate_every):
                training.validate()
            if is_validation or training.every(settings.save_every):
                training.save()
        if training.is_stop_requested:
            training.interrupt()
    return training.finish()


class Training:
    """The state and steps of a training run; see `train` for the arguments."""

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
        loss: LossFunction = translation_cross_entropy,
        announce: Announce = Budget.lines,
    ) -> None:
        if not processes.is_rank0:
            # Process 0 validates, saves and prints.
            checkpoints, log, progress = None, lambda record: None, SilentProgress()
            settings = settings.model_copy(update={"averaging": "none"})
        self.model, self.settings, self.checkpoints, self.processes = model, settings, checkpoints, processes
        self._validate, self._log, self._progress = validate, log, progress
        model.train()
        model.freeze(settings.freeze)
        # Frozen weights do not train.
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.device = self.parameters[0].device
        self.schedule = SCHEDULES[settings.schedule]
        self.optimizer = build_optimizer(model, settings)
        self.average = WeightAverage(self.parameters, settings)
        torch.manual_seed(settings.seed)
        if self.device.type == "cpu":
            limit_heap_fragmentation()
        size = BatchSize(settings.batch_pairs, settings.batch_tokens)
        processes.check_same_data(data)
        state = restore(checkpoints, self.model, self.optimizer, self.average, processes)
        # Whether anything has changed since the last checkpoint, and the update of its weights.
        self.has_unsaved, self.saved_update = state is None, None if state is None else state.update
        self.batch_loss = processes.batch_loss(self.model, loss)
        self.state = state = self._begin(state, data, size, announce)
        torch.set_num_threads(state.pace.threads)
        self.early_stopping = EarlyStopping(settings, state.verdict)
        self.batches = data.stream(size, settings.seed, state.place)
        self.meter = Meter(self.device, state.seconds)
        self.rate, self.is_stop_requested, self.seconds = 0.0, False, state.seconds

    def _begin(
        self, state: TrainingState | None, data: Examples[Any], size: BatchSize, announce: Announce
    ) -> TrainingState:
        """Return the state of a new run or of a run resumed on this machine, and show its first messages."""
        processes = self.processes
        initial = TrainingState(
            pace=ComputeConfig("float32", 1),
            device=self.device.type,
            processes=processes.world_size,
            machine=MachineRow(**processes.from_rank0(lambda: asdict(replace(current_row(), onednn=prefers_onednn())))),
            processor=processor_class(),
        )
        if state is None:
            initial.pace, budget = self._autotune(data, size)
            lines = announce(budget)
        else:
            lines = resume_messages(state, initial, self.settings)
        for line in lines:
            self._progress.say(line)
        return initial if state is None else state

    def _autotune(self, data: Examples[Any], size: BatchSize) -> tuple[ComputeConfig, Budget]:
        """Return the fastest precision and threads for the first batch of a new run, and the resulting budget."""
        processes, settings = self.processes, self.settings
        batches = data.stream(size, settings.seed)
        parts = [processes.next_part(batches) for _ in range(TIMED)]

        def step(precision: Precision, count: int = 1) -> None:
            for batch, _ in parts[:count]:
                self.batch_loss(batch.to(self.device), settings.label_smoothing, precision).backward()
            self.model.zero_grad()

        configs = [ComputeConfig(*values) for values in processes.from_rank0(lambda: candidates(settings, self.device))]
        config = autotune(step, configs, self.device, self._log, self._progress, processes.from_rank0)
        config = ComputeConfig(*processes.from_rank0(lambda: config))
        # one batch may be shorter than most
        seconds = benchmark(partial(step, count=TIMED), self.device, [config], processes.from_rank0, trials=1)[config]
        tokens = sum(batch_tokens for _, batch_tokens in parts)
        return config, Budget(
            settings,
            self.model.to_logits.in_features,
            batches.epoch_batches / settings.accumulate,
            seconds * data.token_count(np.arange(len(data))) / max(tokens, 1),
        )

    @property
    def fraction_done(self) -> float:
        """The progress of training, 0 to 1."""
        return fraction_done(self.settings, self.state.update, self.seconds)

    def should_continue(self, is_stop_requested: bool) -> bool:
        """Return whether to do another update; the answer is the same in all processes."""
        self.is_stop_requested, self.seconds = self.processes.sync_stop(is_stop_requested, self.meter.seconds)
        return not (self.is_stop_requested or self.early_stopping.should_stop) and self.fraction_done < 1

    def every(self, interval: int | None) -> bool:
        """Return whether the number of updates is a multiple of the interval; False without an interval."""
        return interval is not None and self.state.update % interval == 0

    def train_step(self) -> None:
        """Perform one update of the weights."""
        settings, done = self.settings, self.fraction_done
        self.state.update += 1
        self.has_unsaved = True
        self.processes.seed_rank(settings.seed, self.state.update)
        parts = [self.processes.next_part(self.batches) for _ in range(settings.accumulate)]
        tokens = sum(batch_tokens for _, batch_tokens in parts)
        total = torch.zeros((), device=self.device)
        for number, (batch, _) in enumerate(parts, start=1):
            with nullcontext() if number == len(parts) else self.processes.no_sync(self.batch_loss):
                loss = self.batch_loss(batch.to(self.device), settings.label_smoothing, self.state.pace.precision)
                loss = loss * (batch.tokens / tokens)
                loss.backward()
            total = total + loss.detach()
        if settings.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, settings.clip)
        warmup = warmup_updates(settings.warmup, self.state.update, self.fraction_done)
        factor = self.schedule(self.state.update, done, warmup, self.model.to_logits.in_features)
        self.rate = settings.learning_rate * factor * self.early_stopping.state.scale
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        # Muon multiplies matrices.
        with autocast(self.device, self.state.pace.precision):
            self.optimizer.step()
        self.optimizer.zero_grad()
        self.average.add(self.state.update)
        self.meter.add(self.processes.all_reduce(total), tokens)

    def log_progress(self, fraction_done: float | None = None) -> None:
        """Log and show the updates since the last record, if any."""
        if not self.meter.updates:
            return
        record = self.meter.pop_record(self.state.update, self.rate)
        self.state.loss = record["loss"]
        self._log(record)
        self.seconds = record["seconds"]
        self._progress.show(
            record, self.fraction_done if fraction_done is None else fraction_done, self.batches.data.answer_name
        )

    def validate(self) -> None:
        """Validate the averaged weights."""
        self.model.eval()
        with self.average.average_parameters(), torch.no_grad():
            scores = self.processes.from_rank0(lambda: dict(self._validate()))
        self.model.train()
        refuse(
            *(
                (
                    not math.isfinite(score),
                    f"validation's {name} is {score} at update {self.state.update}; a smaller learning_rate may help",
                )
                for name, score in scores.items()
            ),
            kind=AttentError,
        )
        self.has_unsaved = True
        self._log({"update": self.state.update, "seconds": self.meter.seconds, "validation": scores})
        self._progress.say_scores(self.state.update, scores)
        self.early_stopping.step(self.state.update, scores)

    def save(self, fraction_done: float | None = None) -> None:
        """Write a checkpoint, unless nothing has changed since the last one."""
        if not self.checkpoints or not self.has_unsaved:
            return
        self.log_progress(fraction_done)
        self._check_weights_finite()
        self.state.place, self.state.seconds = self.batches.position, self.meter.seconds
        # A validation changes the state but no tensor.
        is_new = self.saved_update != self.state.update
        files = checkpoint_files(self.model, self.optimizer, self.average) if is_new else None
        self.checkpoints.save(self.state, files)
        self.has_unsaved, self.saved_update = False, self.state.update

    def _check_weights_finite(self) -> None:
        """Check that all weights are finite, before a new checkpoint replaces an older one."""
        if not all(bool(parameter.isfinite().all()) for parameter in self.parameters):
            raise AttentError(
                f"a weight is no longer finite at update {self.state.update}; a smaller learning_rate may help"
            )

    def interrupt(self) -> NoReturn:
        """Save after Ctrl-C, print how to resume, and raise KeyboardInterrupt."""
        self.save()
        self._progress.close()
        if self.checkpoints:
            self._progress.say(
                f"saved after update {self.state.update}; to resume: attent train --resume {self.checkpoints.run}"
            )
        # A launcher kills all processes when the first one exits.
        self.processes.barrier()
        raise KeyboardInterrupt

    def finish(self) -> TrainingResult:
        """Validate the last weights, save them, and leave the best weights in the model."""
        self.log_progress(1.0)
        if self.early_stopping.should_stop:
            self._progress.say(f"no improvement in {self.early_stopping.state.waiting} validations: training ends")
        state, best_update = self.state, self.state.update
        if self.early_stopping.state.validated != state.update:
            # Saved first, since validation may take a long time.
            self.save(1.0)
            self.validate()
        self.save(1.0)
        self.model.eval()
        if self.checkpoints:
            best_update = self.checkpoints.publish_best_weights(self.early_stopping.state)
            fill(tensors_of(self.model), self.checkpoints.run / MODEL)
        else:
            self.average.apply()
        self._progress.close()
        if fault := rate_fault(self.settings, state.update, self.fraction_done, self.model.to_logits.in_features):
            self._progress.say(fault)
        scores, device = self.early_stopping.state.scores_of(best_update), described(self.device)
        return TrainingResult(state.update, best_update, self.meter.seconds, state.loss, *state.pace, device, scores)


@contextmanager
def deferred_interrupt() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C within the block sets as a request to stop; a second one acts as usual.

    Only the main thread of a process receives signals; in other threads this has no effect.
    """
    interruption = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    handlers = {number: signal.getsignal(number) for number in SIGNALS}

    def request_stop(number: int, frame: object) -> None:
        interruption.set()
        restore_handlers()

    def restore_handlers() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    for number in SIGNALS:
        signal.signal(number, request_stop)
    try:
        yield interruption
    finally:
        restore_handlers()
