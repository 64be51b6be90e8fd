"""The tasks by name."""

from __future__ import annotations

from typing import Any

from attent.errors import UnknownNameError
from attent.tasks.classification import ClassificationTask
from attent.tasks.masked_lm import MaskedLMTask
from attent.tasks.task import Task
from attent.tasks.translation import TranslationTask

TASKS: dict[str, Task[Any]] = {"translate": TranslationTask(), "fill-mask": MaskedLMTask(), "classify": ClassificationTask()}


def task_of(name: str) -> Task[Any]:
    """The task of this name.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    return TASKS[name]
