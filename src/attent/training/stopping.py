"""When a training ends: its limits in updates and time, and what validation scores decide.

These are the best weights, the learning rate's plateau, and the end after validations without an improvement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from attent.errors import check_known
from attent.training.optimizer import peak_ratio
from attent.training.progress import format_duration
from attent.training.settings import TrainingSettings

LOWER_IS_BETTER = frozenset({"loss", "perplexity"})
# A training whose rate stays below this share of its peak has a warm-up that is too long for it.
ENOUGH = 0.5


class EarlyStoppingState(BaseModel, extra="forbid"):
    """The state of early stopping, as checkpoints store it.

    Args:
        best: the best scores with their updates, best first.
        waiting: validations in a row without an improvement.
        waited: the same, but since the rate was last lowered.
        scale: the factor on the learning rate that the schedule "plateau" has left, 0 to 1.
        validated: the update of the last validation, -1 before the first.
        scores: the last validation's scores.
        best_scores: the best validation's scores.
    """

    best: list[tuple[float, int]] = []
    waiting: int = 0
    waited: int = 0
    scale: float = 1.0
    validated: int = -1
    scores: dict[str, float] = {}
    best_scores: dict[str, float] = {}

    def scores_of(self, update: int) -> dict[str, float]:
        """Return the best validation's scores if they belong to this update, else the last one's."""
        return self.best_scores if self.best_scores and self.best[0][1] == update else self.scores


class EarlyStopping:
    """Ranks validations and counts those without an improvement.

    Args:
        settings: the score to compare, and the patience.
        state: of earlier validations, where training is resumed.
    """

    def __init__(self, settings: TrainingSettings, state: EarlyStoppingState | None = None) -> None:
        self.settings = settings
        self.state = state or EarlyStoppingState()

    @property
    def should_stop(self) -> bool:
        """True after as many validations without an improvement as patience allows."""
        return self.settings.patience is not None and self.state.waiting >= self.settings.patience

    def step(self, update: int, scores: Mapping[str, float]) -> None:
        """Take the scores of a validation into account; of two equal scores the later one ranks first.

        Raises:
            UnknownNameError: the scores lack `judge_by`.
        """
        state = self.state
        state.validated, state.scores = update, dict(scores)
        if not scores:
            return
        name = self.settings.judge_by or next(iter(scores))
        check_known("training.judge_by,", name, scores)
        sign = -1 if name in LOWER_IS_BETTER else 1
        is_better = not state.best or sign * scores[name] > sign * state.best[0][0]
        state.best = sorted(
            [*state.best, (scores[name], update)], key=lambda entry: (sign * entry[0], entry[1]), reverse=True
        )
        del state.best[max(self.settings.keep_best, 1) :]
        if state.best[0][1] == update:
            state.best_scores = dict(scores)
        state.waiting = 0 if is_better else state.waiting + 1
        state.waited = 0 if is_better else state.waited + 1
        if self.settings.schedule == "plateau" and state.waited > self.settings.plateau_patience:
            state.scale, state.waited = state.scale * self.settings.plateau_factor, 0


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
