"""Training settings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from attent.devices import AUTO, check_name
from attent.errors import ArgumentError, refuse
from attent.setting import Flag, Help

Momentum = Annotated[float, Field(ge=0, lt=1)]


def check_warmup(warmup: int | float) -> int | float:
    """Return a warm-up: a number of updates as an integer, or a share of training below 1 as a float.

    Raises:
        ArgumentError: the warm-up is neither.
    """
    if not (0 < warmup < 1 or (warmup >= 0 and float(warmup).is_integer())):
        raise ArgumentError(f"a warm-up is a whole number of updates or a share of training below 1, got {warmup}")
    return warmup if warmup < 1 and warmup else int(warmup)


ScheduleName = Literal["noam", "inverse_sqrt", "cosine", "linear", "constant", "plateau"]


# Settings that may be changed when a run is resumed; changing any other would make it a different run.
CHANGEABLE_ON_RESUME = frozenset(
    {"updates", "minutes", "threads", "patience", "save_every", "keep_last", "keep_best", "log", "device"}
)


class TrainingSettings(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """The settings of a training run.

    Training ends after `updates`, after `minutes`, or when `patience` is exhausted, whichever comes first; schedules
    that decay to zero reach it at `updates` or `minutes`. A checkpoint is written after every validation, every
    `save_every` updates, on Ctrl-C, and at the end.
    """

    updates: Annotated[int | None, Flag("--updates", "--steps")] = Field(
        default=None, ge=1, description="Number of updates; no limit by default."
    )
    minutes: float | None = Field(
        default=None, gt=0, description="Training time in minutes, including validation; no limit by default."
    )
    batch_pairs: int | None = Field(
        default=None, ge=1, description="Pairs in a batch; either this or batch_tokens is required."
    )
    batch_tokens: int | None = Field(
        default=None, ge=1, description="Tokens in a batch, including padding, counted on the longer side of pairs."
    )
    accumulate: int = Field(
        default=1,
        ge=1,
        le=4096,
        description="Batches in an update; their gradients are summed, and the loss is the mean over all their tokens.",
    )
    optimizer: Literal["adamw", "adam", "muon"] = Field(
        default="adamw",
        description='"adamw" (decoupled weight decay), "adam" (weight decay added to the gradient), or "muon" '
        "(orthogonalized momentum for matrices except embeddings and the output layer, adamw for the rest).",
    )
    muon_scale: float = Field(
        default=0.2,
        gt=0,
        description='With "muon", root mean square of an update of matrices divided by the learning rate; that of '
        "adamw is about 0.2.",
    )
    learning_rate: float = Field(
        default=1e-3, gt=0, description='Maximum learning rate; for "noam", a factor applied to the paper\'s formula.'
    )
    schedule: ScheduleName = Field(
        default="inverse_sqrt", description="Learning-rate schedule, see attent.training.optimizer."
    )
    warmup: Annotated[int | float, AfterValidator(check_warmup)] = Field(
        default=400,
        description="Number of updates during which the learning rate rises from zero; or, if below 1, a share of "
        "training (of updates or minutes, whichever limit is nearer).",
    )
    plateau_patience: int = Field(
        default=2,
        ge=0,
        description='With "plateau", consecutive validations without improvement before the learning rate is lowered.',
    )
    plateau_factor: float = Field(
        default=0.5, gt=0, lt=1, description='With "plateau", factor by which the learning rate is multiplied.'
    )
    betas: tuple[Momentum, Momentum] = Field(
        default=(0.9, 0.98), description="Decay rates of Adam's first and second moments."
    )
    epsilon: float = Field(default=1e-9, gt=0, description="Adam's epsilon, which prevents division by zero.")
    weight_decay: float = Field(
        default=0.0, ge=0, description="Weight decay of matrices; embeddings, biases and layer normalization have none."
    )
    label_smoothing: float = Field(
        default=0.1, ge=0, lt=1, description="Share of probability distributed evenly over all tokens, 0 to 1."
    )
    teacher: tuple[str, ...] = Field(
        default=(), description="Runs of translators with the same vocabularies to learn from; several as an ensemble."
    )
    teacher_level: Literal["word", "sequence"] = Field(
        default="word",
        description='With teachers: learn from their distributions of each token ("word"), or from their translations '
        '("sequence").',
    )
    teacher_weight: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="With teachers: their share of the loss, or of the batches; the references have the rest.",
    )
    clip: float | None = Field(default=1.0, gt=0, description="Maximum gradient norm; None for no clipping.")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description='"float32", "bfloat16" (matrix products only; weights stay float32), or "auto": the '
        "faster of the two on this machine.",
    )
    threads: Literal["auto"] | Annotated[int, Field(ge=1)] = Field(
        default="auto",
        description='CPU threads of each process, or "auto": all of torch\'s threads, or one if that is faster.',
    )
    device: Annotated[str, AfterValidator(check_name), Help(metavar="auto|cpu|cuda|cuda:N|mps")] = Field(
        default=AUTO,
        description="Training device; not stored in the run folder, so that a run can be resumed on another device.",
    )
    averaging: Literal["none", "ema", "last"] = Field(
        default="none",
        description='Final weights: the last ("none"), their exponential moving average ("ema"), or the mean of the '
        'last few snapshots ("last").',
    )
    ema_decay: float = Field(default=0.999, gt=0, lt=1, description='Decay of the moving average of "ema".')
    last: int = Field(default=5, ge=1, description='Number of snapshots that "last" averages.')
    last_every: int = Field(default=100, ge=1, description='Updates between snapshots of "last".')
    validate_every: int | None = Field(
        default=None, ge=1, description="Updates between validations; None to validate only at the end."
    )
    judge_by: str | None = Field(
        default=None,
        description='Validation score that ranks checkpoints: lower is better for "loss" and "perplexity", higher for '
        "all others; None for the first score that validation returns.",
    )
    patience: int | None = Field(
        default=None,
        ge=1,
        description="Consecutive validations without improvement before training ends; no limit by default.",
    )
    keep_best: int = Field(
        default=1,
        ge=0,
        description="Number of best checkpoints to keep; the run gets the weights of the best one, or of the last "
        "checkpoint if 0.",
    )
    keep_last: int = Field(default=1, ge=1, description="Number of latest checkpoints to keep.")
    save_every: int | None = Field(
        default=None, ge=1, description="Updates between checkpoints, in addition to those after validations."
    )
    log: Literal["tensorboard"] | None = Field(
        default=None, description="Also write losses, scores and speed to this logger."
    )
    freeze: tuple[str, ...] = Field(
        default=(),
        description="Parts of the model whose weights are not trained: embeddings, encoder, decoder, output.",
    )
    seed: int = Field(
        default=1,
        ge=0,
        lt=2**63,
        description="Seed of the initial weights, data order and dropout; on one machine it determines the result.",
    )

    @model_serializer(mode="wrap")
    def _without_new(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit settings that earlier versions lack, unless they are used, so that the table equals theirs."""
        return {
            name: value
            for name, value in serialize(self).items()
            if (self.teacher or not name.startswith("teacher"))
            and (value or name not in ("log", "freeze"))
            and (self.optimizer == "muon" or name != "muon_scale")
        }

    @property
    def table(self) -> dict[str, Any]:
        """The settings as a table for the run folder, without the device."""
        return self.model_dump(mode="json", exclude={"device"})

    @model_validator(mode="after")
    def _check_required(self) -> TrainingSettings:
        uses_validation = self.patience is not None or self.schedule == "plateau"
        refuse(
            (self.updates is None and self.minutes is None, "set updates or minutes to limit training"),
            (
                (self.batch_pairs is None) == (self.batch_tokens is None),
                "set either batch_pairs or batch_tokens, the size of a batch",
            ),
            (
                uses_validation and self.validate_every is None,
                "patience and the schedule plateau need validations: set validate_every",
            ),
        )
        return self
