"""The settings of training."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from attent.devices import AUTO, check_name

Momentum = Annotated[float, Field(ge=0, lt=1)]
ScheduleName = Literal["noam", "inverse_sqrt", "cosine", "linear", "constant", "plateau"]


# What a run that is taken up again may change; anything else would make it another run.
CHANGEABLE_ON_RESUME = frozenset(
    {"updates", "minutes", "threads", "patience", "save_every", "keep_last", "keep_best", "tensorboard", "sharded", "device"}
)


class TrainingSettings(BaseModel):
    """Everything that decides how a model is trained.

    Training ends at `updates`, after `minutes`, or when `patience` is exhausted, whichever comes first; schedules that
    fall to zero reach it at `updates` or `minutes`. A checkpoint is written after every validation, every `save_every`
    updates, on Ctrl-C, and at the end.

    Args:
        updates: the number of updates, or None for no limit.
        minutes: the time, validation included, or None for no limit.
        batch_pairs: pairs an update; either this or batch_tokens.
        batch_tokens: tokens an update, counted with padding on the longer side of the pairs.
        accumulate: batches an update, whose gradients are summed; the loss is the mean of all their tokens.
        optimizer: "adamw" decays weights apart from the gradient, "adam" adds their decay to it.
        learning_rate: the largest rate; for "noam" the factor before it, 1 in the paper.
        schedule: how the rate goes, as in attent.training.optimizer.
        warmup: updates during which the rate rises from zero.
        plateau_patience: with "plateau", how many validations in a row may find nothing better before the rate falls.
        plateau_factor: what the rate is then multiplied by.
        betas: the optimizer's decay of the first and of the second moment.
        epsilon: the optimizer's term against division by zero.
        weight_decay: the optimizer's decay of the matrices; biases and layer normalisation are left alone.
        label_smoothing: the share of probability given to all tokens alike, 0 to 1.
        clip: the largest norm of the gradient, or None.
        precision: "float32", "bfloat16" (products only; weights stay float32), or "auto": whichever a short
            measurement finds faster on this machine.
        threads: how many of the processor's cores take part, in each process where there are several, or "auto": all that
            torch has, or one where that is faster.
        device: where it is trained, by a name of `attent.devices.device_of`; a run folder does not keep it, and goes on anywhere.
        sharded: whether several processes divide weights, gradients, moments and means among them, so that a model may be larger
            than one of them could train; each layer's weights are gathered when it is used.
        averaging: what is kept of the weights: the last ("none"), an exponential moving average ("ema"), or the mean
            of the last few ("last").
        ema_decay: the share of the moving average kept at each update.
        last: how many weights "last" averages.
        last_every: updates between them.
        validate_every: updates between validations; None validates at the end alone.
        judge_by: the score of a validation that says which weights are better, "loss" and "perplexity" the lower and
            all others the higher; None for the first that validation returns.
        patience: how many validations in a row may find nothing better before training ends; None for no end.
        keep_best: how many of the best checkpoints are kept; the best one's weights become the run's, or with 0 the last one's.
        keep_last: how many of the last checkpoints are kept.
        save_every: updates between checkpoints, beside those of validation; None for no others.
        tensorboard: whether scores and speed are also written for TensorBoard.
        seed: decides the order of the data and dropout, and with the same machine and updates the result.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    updates: int | None = Field(default=None, ge=1)
    minutes: float | None = Field(default=None, gt=0)
    batch_pairs: int | None = Field(default=None, ge=1)
    batch_tokens: int | None = Field(default=None, ge=1)
    accumulate: int = Field(default=1, ge=1, le=4096)
    optimizer: Literal["adamw", "adam"] = "adamw"
    learning_rate: float = Field(default=1e-3, gt=0)
    schedule: ScheduleName = "inverse_sqrt"
    warmup: int = Field(default=400, ge=0)
    plateau_patience: int = Field(default=2, ge=0)
    plateau_factor: float = Field(default=0.5, gt=0, lt=1)
    betas: tuple[Momentum, Momentum] = (0.9, 0.98)
    epsilon: float = Field(default=1e-9, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    clip: float | None = Field(default=1.0, gt=0)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    device: str = AUTO
    sharded: bool = False
    averaging: Literal["none", "ema", "last"] = "none"
    ema_decay: float = Field(default=0.999, gt=0, lt=1)
    last: int = Field(default=5, ge=1)
    last_every: int = Field(default=100, ge=1)
    validate_every: int | None = Field(default=None, ge=1)
    judge_by: str | None = None
    patience: int | None = Field(default=None, ge=1)
    keep_best: int = Field(default=1, ge=0)
    keep_last: int = Field(default=1, ge=1)
    save_every: int | None = Field(default=None, ge=1)
    tensorboard: bool = False
    seed: int = Field(default=1, ge=0, lt=2**63)

    @property
    def table(self) -> dict[str, Any]:
        """As the run folder keeps it."""
        return self.model_dump(mode="json", exclude={"device"})

    @field_validator("device")
    @classmethod
    def _is_a_device(cls, name: str) -> str:
        check_name(name)
        return name

    @model_validator(mode="after")
    def _enough_is_said(self) -> TrainingSettings:
        if self.updates is None and self.minutes is None:
            raise ValueError("updates or minutes must say when training ends")
        if (self.batch_pairs is None) == (self.batch_tokens is None):
            raise ValueError("one of batch_pairs and batch_tokens must say how large a batch is")
        if self.validate_every is None and (self.patience is not None or self.schedule == "plateau"):
            raise ValueError("patience and the schedule plateau need validations: validate_every must say how often")
        return self
