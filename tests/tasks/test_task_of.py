import pytest

from attent.errors import UnknownNameError
from attent.runs.config import DOES
from attent.tasks.task import TASKS, task_of
from attent.tasks.translation.task import TranslationTask


def test_every_task_is_one_that_runs_know() -> None:
    assert set(TASKS) <= set(DOES)
    assert isinstance(task_of("translate"), TranslationTask)
    with pytest.raises(UnknownNameError, match="unknown task 'translat'; did you mean 'translate'"):
        task_of("translat")
