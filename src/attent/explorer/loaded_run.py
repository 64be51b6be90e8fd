"""Loaded runs, optionally with another score or normalizer in every attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attent.attention import choices
from attent.attention.base import Normalizer, Score
from attent.errors import ArgumentError, check_index
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


def load_run(
    path: Path | str,
    *,
    score: str | None = None,
    normalizer: str | None = None,
    device: torch.device | str = "cpu",
    trust_code: bool = False,
) -> LoadedRun:
    """Load a run folder.

    Args:
        path: the run folder.
        score: the score to use in every attention, if given; it must have no parameters.
        normalizer: the normalizer to use in every attention, if given.
        device: the device on which its model computes.
        trust_code: whether to import and execute the modules that the run names.

    Raises:
        ArgumentError: there is no score or normalizer to replace, or the score has parameters.
        RunError: the folder is missing, damaged, or written by a newer version.
        UnknownNameError: there is no such score or normalizer.
    """
    config, tool = read_config(path), load(path, device, trust_code)
    changes = swap(tool.model, score=score, normalizer=normalizer)
    languages = [config.languages] if config.languages else []
    return LoadedRun(" · ".join((Path(path).name or str(path), *languages, *changes)), config.task, tool)


def with_examples(run: LoadedRun, examples: Any) -> LoadedRun:
    """Return the run with examples to choose from; for None, return it unchanged.

    Raises:
        ArgumentError: the run reads texts.
    """
    if examples is None:
        return run
    if run.input_kind == "texts":
        raise ArgumentError(f"{run.name} reads texts and takes no examples")
    return replace(run, examples=run.tool.data(examples))


def swap(model: nn.Module, *, score: str | None = None, normalizer: str | None = None) -> Sequence[str]:
    """Replace the score or the normalizer of every attention of a model; return a description of each change.

    Raises:
        ArgumentError: there is no such attention, or the old or new score has parameters, which cannot be replaced
            without training.
        UnknownNameError: there is no such score or normalizer.
    """
    attentions = [module for module in model.modules() if isinstance(getattr(module, "normalizer", None), Normalizer)]
    if (score or normalizer) and not attentions:
        raise ArgumentError("this run has no attention whose score or normalizer can be replaced")
    if normalizer is not None:
        part = choices.normalizer(normalizer)
        for module in attentions:
            module.normalizer = part  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    if score is not None:
        for module in attentions:
            old = module.score
            assert isinstance(old, Score)
            if [*old.parameters()]:
                raise ArgumentError(f"the score {type(old).__name__} of this run has parameters and cannot be replaced")
            new = choices.score(score)
            if [*new.parameters()]:
                raise ArgumentError(f"the score {score!r} has parameters that this run was not trained with")
            module.score = new
    return [f"{slot} {name}" for slot, name in (("score", score), ("normalizer", normalizer)) if name is not None]
