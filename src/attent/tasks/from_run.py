"""The base class of loaded runs, with a readable description, and their loading."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from attent.runs.config import DType, RunConfig
from attent.runs.folder import Run
from attent.runs.packed import use_dtype
from attent.tasks.task import task_of

Tool = TypeVar("Tool", bound="FromRun")


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


def load_tool(
    path: Path | str,
    task: str,
    make: Callable[[Run], Tool],
    device: torch.device | str,
    *,
    trust_code: bool,
    dtype: DType | None,
) -> Tool:
    """Load the tool of a run folder.

    Args:
        path: the folder.
        task: the task that the run must have.
        make: makes the tool from the run, whose model is on the device.
        device: the device.
        trust_code: whether the run may name modules to import.
        dtype: weight type; the run's own by default.

    Raises:
        ArgumentError: the model cannot be computed here with weights of this type.
        RunError: the folder is missing, damaged or written by a newer version, or it is a run of another task.
    """
    return tool_of_run(path, task_of(task).read(path, trust_code=trust_code), make, device, dtype)


def tool_of_run(
    path: Path | str, run: Run, make: Callable[[Run], Tool], device: torch.device | str, dtype: DType | None
) -> Tool:
    """Return the tool of a run that was read; arguments and errors as for `load_tool`."""
    run.model.to(device)
    tool = make(run)
    tool.config = run.config
    use_dtype(path, run, device, dtype)
    return tool
