"""The tasks by name."""

from __future__ import annotations

from typing import Any

from attent.config.tasks.blanks import Blanks
from attent.config.tasks.classification import Classification
from attent.config.tasks.task import Task
from attent.config.tasks.translation import Translation
from attent.errors import UnknownNameError

TASKS: dict[str, Task[Any]] = {"translate": Translation(), "fill-mask": Blanks(), "classify": Classification()}


def task_of(name: str) -> Task[Any]:
    """The task of this name.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    return TASKS[name]
