"""Decisions taken from validation scores: the best weights, the learning rate's plateau, and the end of training."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from attent.errors import check_known
from attent.training.settings import TrainingSettings

LOWER_IS_BETTER = frozenset({"loss", "perplexity"})


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
