"""The training loop, to be read from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attent.data.batches import Batch, BatchSize, Bitext
from attent.models.encoder_decoder import EncoderDecoder
from attent.training.averaging import Average
from attent.training.loss import cross_entropy
from attent.training.meter import Meter
from attent.training.pace import Pace, Precision, autocast, candidates, faster, measured
from attent.training.progress import Progress
from attent.training.schedules import SCHEDULES
from attent.training.settings import TrainingSettings

Log = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Trained:
    """What training did.

    Args:
        updates: how many updates there were.
        seconds: how long they took, validation included.
        loss: the mean training loss since the last record before the end, in nats per token; None without an update.
        precision: the precision used.
        threads: how many threads computed.
        validation: what the last validation returned.
    """

    updates: int
    seconds: float
    loss: float | None
    precision: Precision
    threads: int
    validation: dict[str, float]


def train(
    model: EncoderDecoder[Any],
    data: Bitext,
    settings: TrainingSettings,
    *,
    validate: Callable[[], Mapping[str, float]] = dict,
    log: Log = lambda record: None,
    progress: Progress | None = None,
) -> Trained:
    """Train a model in place; it ends in evaluation mode, with the mean of its weights if the settings ask for one.

    Args:
        model: keeps the contract of `attent.models.encoder_decoder`.
        data: the pairs to learn.
        settings: how.
        validate: called with the model in evaluation mode and the weights that would be kept; returns scores by name.
        log: gets each record: about every second, after each validation, and at the end.
        progress: where a person sees it; standard error unless said otherwise.

    The number of threads that training chooses stays that of the process.

    Raises:
        DataError: there is no pair.
        AttentError: the loss is no longer finite.
    """
    progress = progress or Progress()
    parameters = list(model.parameters())
    device = parameters[0].device
    size = BatchSize(settings.batch_pairs, settings.batch_tokens)
    schedule = SCHEDULES[settings.schedule]
    optimizer = adamw(parameters, settings)
    average = Average(parameters, settings)
    torch.manual_seed(settings.seed)
    model.train()
    precision, threads = chosen_pace(model, next(data.endless(size, settings.seed)).to(device), settings, log, progress)
    torch.set_num_threads(threads)

    update, rate, record, scores = 0, 0.0, {}, {}
    meter = Meter(device)
    for batch in data.endless(size, settings.seed):
        done = share_done(settings, update, meter.seconds)
        if done >= 1:
            break
        update += 1
        loss, width = loss_of(model, batch.to(device), settings.label_smoothing, precision)
        loss.backward()
        if settings.clip is not None:
            nn.utils.clip_grad_norm_(parameters, settings.clip)
        rate = settings.learning_rate * schedule(update, done, settings.warmup, width)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        average.add(update)
        meter.add(loss, batch.tokens)

        if meter.due:
            record = meter.record(update, rate)
            log(record)
            progress.show(record, done)
        if settings.validate_every and update % settings.validate_every == 0:
            with kept_weights(model, average):
                scores = dict(validate())
            log({"update": update, "seconds": meter.seconds, "validation": scores})
            progress.say_scores(update, scores)

    if meter.updates:
        record = meter.record(update, rate)
        log(record)
        progress.show(record, 1.0)
    average.apply()
    model.eval()
    if not (settings.validate_every and update % settings.validate_every == 0):
        with torch.no_grad():
            scores = dict(validate())
        log({"update": update, "seconds": meter.seconds, "validation": scores})
        progress.say_scores(update, scores)
    progress.close()
    return Trained(update, meter.seconds, record.get("loss"), precision, threads, scores)


def loss_of(model: EncoderDecoder[Any], batch: Batch, label_smoothing: float, precision: Precision) -> tuple[Tensor, int]:
    """The loss of one batch, a scalar in nats per token, and the model width E that a schedule may ask for."""
    with autocast(batch.source.device, precision):
        features = model.decode(model.encode(batch.source, batch.source_lengths), batch.target_in)
        return cross_entropy(model.output(features), batch.target_out, label_smoothing), features.shape[-1]


def chosen_pace(model: EncoderDecoder[Any], batch: Batch, settings: TrainingSettings, log: Log, progress: Progress) -> Pace:
    """The precision and the threads in the settings; of what they leave open, the way in which this batch's gradients take less time."""
    device = batch.source.device
    paces = candidates(settings, device)

    def gradients(precision: Precision) -> None:
        loss_of(model, batch, settings.label_smoothing, precision)[0].backward()
        model.zero_grad()

    if len(paces) > 1:
        seconds = measured(gradients, device, paces)
        chosen = faster(seconds)
        log({"pace": str(chosen), "seconds": {str(pace): time for pace, time in seconds.items()}})
        times = ", ".join(f"{1000 * time:.0f} ms in {pace}" for pace, time in seconds.items())
        progress.say(f"{chosen}: the gradients of a batch take {times}")
        return chosen
    return paces[0]


def share_done(settings: TrainingSettings, updates: int, seconds: float) -> float:
    """How much of training is over, 0 to 1, by whichever limit is nearer."""
    by_updates = updates / settings.updates if settings.updates else 0.0
    by_time = seconds / (60 * settings.minutes) if settings.minutes else 0.0
    return max(by_updates, by_time)


def adamw(parameters: list[nn.Parameter], settings: TrainingSettings) -> torch.optim.AdamW:
    """AdamW that decays matrices alone, in one fused call an update.

    Source: Loshchilov & Hutter (2019), algorithm 2, arXiv 1711.05101.
    """
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    vectors = [parameter for parameter in parameters if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon, fused=True)


@contextmanager
def kept_weights(model: EncoderDecoder[Any], average: Average) -> Iterator[None]:
    """The model in evaluation mode with the weights that would be kept; back in training afterwards."""
    model.eval()
    with average.applied(), torch.no_grad():
        yield
    model.train()
