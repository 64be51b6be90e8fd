"""What validations decide: which weights are the best, when the rate falls, and when training has lasted long enough."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from attent.errors import UnknownNameError
from attent.training.settings import TrainingSettings

LOWER_IS_BETTER = frozenset({"loss", "perplexity"})


class EarlyStoppingState(BaseModel):
    """What the validations so far have led to.

    Args:
        best: the best scores and their updates, the best one first.
        waiting: how many validations in a row have found nothing better.
        waited: as `waiting`, but since the rate fell last.
        scale: what is left of the learning rate with the schedule "plateau", 0 to 1.
        validated: the update of the last validation, -1 before the first.
        scores: what the last validation returned.
        best_scores: what the best one returned.
    """

    model_config = ConfigDict(extra="forbid")

    best: list[tuple[float, int]] = []
    waiting: int = 0
    waited: int = 0
    scale: float = 1.0
    validated: int = -1
    scores: dict[str, float] = {}
    best_scores: dict[str, float] = {}

    def scores_of(self, update: int) -> dict[str, float]:
        """What the validation of the best weights returned, if they are of this update; else what the last one did."""
        return self.best_scores if self.best_scores and self.best[0][1] == update else self.scores


class EarlyStopping:
    """Takes the scores of each validation into account.

    Args:
        settings: what is compared, and how patient to be.
        verdict: of the validations before, in a run that goes on.
    """

    def __init__(self, settings: TrainingSettings, state: EarlyStoppingState | None = None) -> None:
        self.settings = settings
        self.state = state or EarlyStoppingState()

    @property
    def should_stop(self) -> bool:
        """Whether there were as many validations without anything better as patience allows."""
        return self.settings.patience is not None and self.state.waiting >= self.settings.patience

    def step(self, update: int, scores: Mapping[str, float]) -> None:
        """Take one validation into account; where two scores are equal, the later one's weights are preferred to keep.

        Raises:
            UnknownNameError: the score to judge by is not among them.
        """
        verdict = self.state
        verdict.validated, verdict.scores = update, dict(scores)
        if not scores:
            return
        name = self.settings.judge_by or next(iter(scores))
        if name not in scores:
            raise UnknownNameError("training.judge_by,", name, scores)
        sign = -1 if name in LOWER_IS_BETTER else 1
        better = not verdict.best or sign * scores[name] > sign * verdict.best[0][0]
        verdict.best = sorted([*verdict.best, (scores[name], update)], key=lambda entry: (sign * entry[0], entry[1]), reverse=True)
        del verdict.best[max(self.settings.keep_best, 1) :]
        if verdict.best[0][1] == update:
            verdict.best_scores = dict(scores)
        verdict.waiting = 0 if better else verdict.waiting + 1
        verdict.waited = 0 if better else verdict.waited + 1
        if self.settings.schedule == "plateau" and verdict.waited > self.settings.plateau_patience:
            verdict.scale, verdict.waited = verdict.scale * self.settings.plateau_factor, 0
