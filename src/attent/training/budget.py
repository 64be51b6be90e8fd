"""The limits of a training in updates and time, and the lines that report them before and after it."""

from __future__ import annotations

from dataclasses import dataclass

from attent.training.optimizer import peak_ratio
from attent.training.progress import format_duration
from attent.training.settings import TrainingSettings

# A training whose rate stays below this share of its peak has a warm-up that is too long for it.
ENOUGH = 0.5


@dataclass(frozen=True)
class Budget:
    """The updates and the time that the limits of a training allow.

    Args:
        settings: of training.
        width: of the model.
        epoch_updates: updates in an epoch.
        epoch_seconds: the time that they take on this machine, by a few steps that were timed.
        validation_seconds: about the time of a validation; 0 if unknown.
    """

    settings: TrainingSettings
    width: int
    epoch_updates: float
    epoch_seconds: float
    validation_seconds: float = 0.0

    @property
    def update_seconds(self) -> float:
        """Seconds of an update, and of its share of validations."""
        interval = self.settings.validate_every
        return max(self.epoch_seconds / self.epoch_updates, 1e-9) + (
            self.validation_seconds / interval if interval else 0.0
        )

    @property
    def updates(self) -> float:
        """The updates until training ends, unless patience ends it before."""
        limits = [self.settings.updates, self.settings.minutes and 60 * self.settings.minutes / self.update_seconds]
        return max(min(limit for limit in limits if limit is not None), 1.0)

    @property
    def epochs(self) -> float:
        """Passes through the examples."""
        return self.updates / self.epoch_updates

    def lines(self) -> list[str]:
        """Return lines that say how long training takes, and whether its warm-up is too long."""
        updates, interval = round(self.updates), self.settings.validate_every
        has_last = not interval or updates % interval > 0
        validations = updates // (interval or updates + 1) + has_last
        seconds = self.updates * self.epoch_seconds / self.epoch_updates + validations * self.validation_seconds
        link = "with" if self.validation_seconds else "and"
        line = (
            f"about {format_duration(seconds)} on this machine, {link} {validations} "
            f"validation{'s' if validations > 1 else ''}: {updates:,} updates of "
            f"{self.epoch_seconds / self.epoch_updates:.2g} s, {self.epochs:.3g} epochs"
        )
        fault = rate_fault(self.settings, updates, 1.0, self.width)
        return [line] if fault is None else [line, f"warning: {fault}"]


def rate_fault(settings: TrainingSettings, updates: int, progress: float, width: int) -> str | None:
    """Return a line if the learning rate of so many updates stays below half of its peak, else None.

    The line also says what to change.

    Args:
        settings: of training.
        updates: the number of updates.
        progress: of training after them, 0 to 1.
        width: of the model.
    """
    ratio = peak_ratio(settings, updates, progress, width) if updates else 1.0
    if ratio >= ENOUGH:
        return None
    length = f"{settings.warmup:,} updates" if settings.warmup >= 1 else f"{settings.warmup:.0%} of the training"
    return (
        f"{updates:,} updates are too few for a warm-up of {length}: the learning rate reaches {ratio:.0%} of its "
        "peak; --set training.warmup=0.1 warms up in a tenth of whatever --minutes or --updates allow"
    )
