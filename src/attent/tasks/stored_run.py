"""A run folder, from which a task loads what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import torch

from attent.runs.config import DType, read_config
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.evaluation import Results, Say
from attent.tasks.recipe import validate
from attent.tasks.task import Task, refusal, task_of_run


class StoredRun:
    """A run folder, which is loaded when its tool is asked for.

    Args:
        path: of the folder.
        device: of the model.
        trust_code: whether it may name modules to import.
        dtype: the type of weights; the run's own unless given.

    Attributes:
        config: the run's config.
        task: the run's task.

    Raises:
        RunError: the config is missing, damaged, or written by a newer version, or its task is unknown.
    """

    def __init__(
        self,
        path: Path | str,
        device: torch.device | str = "cpu",
        *,
        trust_code: bool = False,
        dtype: DType | None = None,
    ) -> None:
        self.path, self.config = Path(path), read_config(path)
        self.task: Task[Any] = task_of_run(path, self.config)
        self._device, self._trust_code, self._dtype, self._tool = device, trust_code, dtype, None

    @property
    def tool(self) -> Any:
        """The translator, language model or whatever else `attent.load` returns.

        Raises:
            ArgumentError, RunError: as `attent.load`.
        """
        if self._tool is None:
            self._tool = self.task.load(self.path, self._device, trust_code=self._trust_code, dtype=self._dtype)
        return self._tool

    def refuse(self) -> NoReturn:
        """Refuse what the run cannot do.

        Raises:
            RunError: the message names what it does.
        """
        raise refusal(self.path, self.config)

    def validate(self, say: Say, search: SearchSettings = GREEDY) -> Results:
        """Evaluate the run on the validation part of its corpus; see `attent.tasks.recipe.validate`."""
        return validate(self.path, self.tool.model, say, search)
