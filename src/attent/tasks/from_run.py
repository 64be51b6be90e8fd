"""The base class of loaded runs, with a readable description."""

from __future__ import annotations

from typing import Any

from attent.runs.config import RunConfig
from attent.tasks.task import task_of


class FromRun:
    """Base class of the objects that `attent.load` returns.

    Its repr names the task, the model, the amount of training and the validation scores.

    Attributes:
        model: the model, of any kind.
        config: the run's config; None for a model that does not come from a run folder.
        input_kind: the kind of its input.
    """

    model: Any
    config: RunConfig | None = None
    input_kind: str = "texts"

    def __repr__(self) -> str:
        name, config = type(self).__name__, self.config
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        model = f"{type(self.model).__name__} with {parameters:,} parameters"
        if config is None:
            return f"{name}({model})"
        does = " ".join(filter(None, (task_of(config.task).does, config.languages)))
        outcome = config.training.get("outcome")
        if origin := config.origin:
            return (
                f"{name}: {does}, {model}\nimported: {origin.get('name')}, licence: "
                f"{origin.get('licence', 'not named')}"
            )
        if not isinstance(outcome, dict):
            return f"{name}: {does}, {model}\ntraining unfinished"
        updates, validation = outcome.get("updates"), outcome.get("validation")
        count = f"{updates:,}" if isinstance(updates, int) else "an unknown number of"
        numbers = validation.items() if isinstance(validation, dict) else ()
        scores = "".join(f", {score} {value:.4g}" for score, value in numbers if isinstance(value, int | float))
        return f"{name}: {does}, {model}\ntrained for {count} updates; validation: {scores[2:] or 'none'}"
