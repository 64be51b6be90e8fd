from __future__ import annotations

from typing import Any

import pytest

from attent.errors import RunError, UnknownNameError
from attent.models.settings import EncoderSettings, TransformerSettings
from attent.runs.config import RunConfig
from attent.tasks.task import task_of, tasks
from attent.tasks.translation.task import TranslationTask


def test_tasks_are_found_by_reading_their_folder() -> None:
    assert {*tasks()} == {"translate", "fill-mask", "classify", "text-generation", "caption", "answer"}
    assert isinstance(task_of("translate"), TranslationTask)
    with pytest.raises(UnknownNameError, match="unknown task 'translat'; did you mean 'translate'"):
        task_of("translat")


def test_a_run_of_another_task_names_its_command() -> None:
    translates = RunConfig(model=TransformerSettings())
    fills = RunConfig(task="fill-mask", tokenizers={"text": "word"}, model=EncoderSettings(), sizes=(8, 7))
    files = {"tokenizers": {}, "sizes": (3, 2), "files": ("labels.json",)}
    classifies = RunConfig(task="classify", model=EncoderSettings(), **files)
    for config, does in (
        (translates, "translates: attent translate RUN TEXT"),
        (fills, "fills blanks: attent fill RUN TEXT"),
        (classifies, "classifies: attent classify RUN FILE"),
    ):
        task_of(config.task).check_config("RUN", config)
        for name in {"translate", "fill-mask", "classify"} - {config.task}:
            with pytest.raises(RunError, match=f"^RUN {does}$"):
                task_of(name).check_config("RUN", config)
    unknown = translates.model_copy(update={"task": "summarize"})
    with pytest.raises(RunError, match="RUN cannot be loaded: its task 'summarize' is unknown"):
        task_of("translate").check_config("RUN", unknown)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tokenizers": {"text": "word"}}, "translates has the tokenizers source, target, got text"),
        ({"task": "fill-mask"}, "fills blanks has the tokenizers text, got source, target"),
        ({"task": "classify", "tokenizers": {"words": "char"}, "sizes": (3, 2)}, "has the tokenizers text, got words"),
        ({"model": {"kind": "encoder"}}, "translates has no model of kind 'encoder'"),
        ({"task": "fill-mask", "tokenizers": {"text": "word"}}, "fills blanks has no model of kind 'transformer'"),
    ],
)
def test_a_config_that_does_not_suit_its_task_is_refused(values: dict[str, Any], message: str) -> None:
    config = RunConfig.model_validate({"model": {}} | values)
    with pytest.raises(RunError, match=rf"^RUN/config\.json is damaged: .*{message}$"):
        task_of(config.task).check_config("RUN", config)


def test_metrics_are_those_of_the_task() -> None:
    first = {"translate": "loss", "classify": "accuracy", "text-generation": "perplexity", "fill-mask": "accuracy"}
    assert {name: task.metric(None) for name, task in tasks().items()} == first | {"caption": "", "answer": ""}
    assert task_of("translate").metric("bleu") == "bleu"
    with pytest.raises(UnknownNameError, match=r"\(known: accuracy, loss\)$"):
        task_of("classify").metric("bleu")
