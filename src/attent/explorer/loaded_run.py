"""Loaded runs."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from attent.errors import ArgumentError, check_index, refuse
from attent.runs.config import read_config
from attent.tasks.classification.arrays import VectorSequences
from attent.tasks.classification.pictures import Pictures
from attent.tasks.loading import load


@dataclass(frozen=True)
class LoadedRun:
    """A run that is ready for requests.

    Args:
        name: the run's title on the page.
        task: the name of its task.
        tool: the translator, generator, filler or classifier.
        examples: the examples to choose from, for a classifier of pictures or vectors; None for a run that reads text.
    """

    name: str
    task: str
    tool: Any
    examples: Pictures | VectorSequences | None = None

    @property
    def input_kind(self) -> str:
        """The kind of input: texts, pictures or vectors."""
        return self.tool.input_kind

    def describe(self) -> dict[str, Any]:
        """Return a description of the run, ready for JSON."""
        return {"name": self.name, "task": self.task, "reads": self.input_kind, "examples": len(self.examples or ())}

    def example(self, row: int) -> Pictures | VectorSequences:
        """Return one example, as a batch of one.

        Raises:
            ArgumentError: there is no such example.
        """
        if self.examples is None:
            raise ArgumentError("there are no examples to choose from")
        return self.examples.select([check_index("row", row, len(self.examples))])


def load_run(path: Path | str, *, device: torch.device | str = "cpu", trust_code: bool = False) -> LoadedRun:
    """Load a run folder.

    Args:
        path: the run folder.
        device: the device on which its model computes.
        trust_code: whether to import and execute the modules that the run names.

    Raises:
        RunError: the folder is missing, damaged, or written by a newer version.
    """
    config, tool = read_config(path), load(path, device, trust_code)
    languages = [config.languages] if config.languages else []
    return LoadedRun(" · ".join((Path(path).name or str(path), *languages)), config.task, tool)


def with_examples(run: LoadedRun, examples: Any) -> LoadedRun:
    """Return the run with examples to choose from; for None, return it unchanged.

    Raises:
        ArgumentError: the run reads texts.
    """
    if examples is None:
        return run
    refuse((run.input_kind == "texts", f"{run.name} reads texts and takes no examples"))
    return replace(run, examples=run.tool.data(examples))
