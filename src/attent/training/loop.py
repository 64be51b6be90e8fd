"""The training loop, to be read from top to bottom."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import nn

from attent.data.batches import Batch, BatchSize, Bitext
from attent.errors import AttentError
from attent.models.encoder_decoder import EncoderDecoder
from attent.training.averaging import Average
from attent.training.loss import cross_entropy
from attent.training.precision import Precision, autocast, measure
from attent.training.progress import Progress
from attent.training.schedules import SCHEDULES
from attent.training.settings import TrainingSettings

# Seconds between records of the log; each needs the loss, for which an accelerator must be waited for.
RECORD_EVERY = 1.0


@dataclass(frozen=True)
class Trained:
    """What training did.

    Args:
        updates: how many updates there were.
        seconds: how long they took, validation included.
        loss: the mean training loss since the last record before the end, in nats per token.
        precision: the precision used.
        validation: what the last validation returned.
    """

    updates: int
    seconds: float
    loss: float
    precision: Precision
    validation: Mapping[str, float]


def train(
    model: EncoderDecoder[Any],
    data: Bitext,
    settings: TrainingSettings,
    *,
    validate: Callable[[], Mapping[str, float]] | None = None,
    log: Callable[[Mapping[str, Any]], None] = lambda record: None,
    progress: Progress | None = None,
) -> Trained:
    """Train a model in place; it ends in evaluation mode, with the averaged weights if the settings ask for a mean.

    Args:
        model: keeps the contract of `attent.models.encoder_decoder`.
        data: the pairs to learn.
        settings: how.
        validate: called with the model in evaluation mode and the weights that would be kept; returns scores by name.
        log: gets each record: about every second, after each validation, and at the end.
        progress: where a person sees it; standard error unless said otherwise.

    Raises:
        AttentError: the loss is no longer finite.
    """
    progress = progress or Progress()
    parameters = list(model.parameters())
    device = parameters[0].device
    torch.manual_seed(settings.seed)
    size = BatchSize(settings.batch_pairs, settings.batch_tokens)
    schedule = SCHEDULES[settings.schedule]
    optimizer = adamw(parameters, settings)
    average = Average(parameters, settings)
    model.train()

    def loss_of(batch: Batch, precision: Precision) -> tuple[torch.Tensor, int]:
        with autocast(device, precision):
            features = model.decode(model.encode(batch.source, batch.source_lengths), batch.target_in)
            return cross_entropy(model.output(features), batch.target_out, settings.label_smoothing), features.shape[-1]

    def gradients(precision: Precision) -> None:
        loss_of(first, precision)[0].backward()
        optimizer.zero_grad()

    if settings.precision == "auto":
        first = next(data.endless(size, settings.seed)).to(device)
        seconds = measure(gradients, device)
        precision = min(get_args(Precision), key=lambda name: seconds[name])
        progress.say(f"precision {precision}: an update takes " + ", ".join(f"{1000 * seconds[name]:.0f} ms in {name}" for name in seconds))
        log({"precision": precision, "seconds_per_update": seconds})
    else:
        precision = settings.precision

    def validated() -> Mapping[str, float]:
        if validate is None:
            return {}
        model.eval()
        with average.applied(), torch.no_grad():
            scores = validate()
        model.train()
        log({"update": update, "seconds": time.monotonic() - started, "validation": dict(scores)})
        progress.say(f"update {update}  " + "  ".join(f"{name} {score:.4g}" for name, score in scores.items()))
        return scores

    def report(rate: float, done: float) -> float:
        nonlocal recorded, losses, batches, tokens
        now = time.monotonic()
        loss = float(losses) / max(batches, 1)
        if not math.isfinite(loss):
            raise AttentError(f"the loss is no longer finite at update {update}: a smaller learning_rate than {settings.learning_rate} may help")
        record = {
            "update": update,
            "loss": loss,
            "tokens_per_second": tokens / (now - recorded),
            "learning_rate": rate,
            "seconds": now - started,
        }
        log(record)
        progress.show(record, (now - started) * (1 / done - 1) if done > 0 else math.inf)
        recorded, losses, batches, tokens = now, torch.zeros((), device=device), 0, 0
        return loss

    update, rate, loss_reported, scores = 0, 0.0, math.nan, {}
    losses, batches, tokens = torch.zeros((), device=device), 0, 0
    started = recorded = time.monotonic()
    for batch in data.endless(size, settings.seed):
        done = share_done(settings, update, time.monotonic() - started)
        if done >= 1:
            break
        if batches and time.monotonic() - recorded > RECORD_EVERY:
            loss_reported = report(rate, done)
        update += 1
        loss, width = loss_of(batch.to(device), precision)
        loss.backward()
        if settings.clip is not None:
            nn.utils.clip_grad_norm_(parameters, settings.clip)
        rate = settings.learning_rate * schedule(update, done, settings.warmup, width)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        average.add(update)
        # The sum stays on the device: reading it here would make every update wait.
        losses, batches, tokens = losses + loss.detach(), batches + 1, tokens + batch.tokens
        if settings.validate_every and update % settings.validate_every == 0:
            scores = validated()
    if batches:
        loss_reported = report(rate, 1.0)
    if not (settings.validate_every and update % settings.validate_every == 0):
        scores = validated()
    progress.close()
    average.apply()
    model.eval()
    return Trained(update, time.monotonic() - started, loss_reported, precision, scores)


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
