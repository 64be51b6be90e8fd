"""Runs that are open: what each does, and the same run with another score or normalizer beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attent.attention import choices
from attent.attention.base import Normalizer, Score
from attent.data.labelled.arrays import VectorSequences
from attent.data.labelled.pictures import Pictures
from attent.decoding.loading import load
from attent.errors import ArgumentError
from attent.runs.config import Task, read_config


@dataclass(frozen=True)
class Opened:
    """A run, ready to be asked.

    Args:
        name: what a reader sees.
        task: what it does.
        tool: the translator, filler or classifier.
        examples: of a classifier of pictures or vectors, those that can be chosen; nothing where texts are typed.
    """

    name: str
    task: Task
    tool: Any
    examples: Pictures | VectorSequences | None = None

    def describe(self) -> dict[str, Any]:
        """For JSON."""
        reads = self.tool.inputs.inputs.kind if self.task == "classify" else "texts"
        return {"name": self.name, "task": self.task, "reads": reads, "examples": 0 if self.examples is None else len(self.examples)}

    def example(self, row: int) -> Pictures | VectorSequences:
        """One of the examples.

        Raises:
            ArgumentError: there is none, or no such one.
        """
        if self.examples is None:
            raise ArgumentError("there are no examples to choose from")
        if not 0 <= row < len(self.examples):
            raise ArgumentError(f"row must be from 0 to {len(self.examples) - 1}, got {row}")
        if isinstance(self.examples, Pictures):
            return Pictures(self.examples.pixels[[row]], None, ())
        return VectorSequences(self.examples.vectors[[row]], self.examples.lengths[[row]], None, ())


def opened(
    path: Path | str,
    *,
    score: str | None = None,
    normalizer: str | None = None,
    device: torch.device | str = "cpu",
    trust_code: bool = False,
) -> Opened:
    """Open a run.

    Args:
        path: the run folder.
        score: computed by every attention in the place of its own, if given; one without parameters.
        normalizer: the same of the normalizer.
        device: where its model computes.
        trust_code: whether the run itself may name modules to import.

    Raises:
        ArgumentError: there is no attention whose score or normalizer could be another, or the score has parameters.
        RunError: the folder is missing, damaged, or written by a newer version.
        UnknownNameError: there is no such score or normalizer.
    """
    task, tool = read_config(path).task, load(path, device, trust_code)
    swapped = swap(tool.model, score=score, normalizer=normalizer)
    return Opened(" · ".join((Path(path).name or str(path), *swapped)), task, tool)


def with_examples(run: Opened, examples: Any) -> Opened:
    """The same run with examples that can be chosen; None for none.

    Raises:
        ArgumentError: it reads something else.
    """
    if examples is None:
        return run
    if run.task != "classify" or run.describe()["reads"] == "texts":
        raise ArgumentError(f"{run.name} reads texts, and what is to choose from is none")
    return replace(run, examples=run.tool.data(examples))


def swap(model: nn.Module, *, score: str | None = None, normalizer: str | None = None) -> Sequence[str]:
    """Let every attention of a model compute another score or normalizer; what was swapped, in words.

    Raises:
        ArgumentError: there is no such attention, or the score has parameters, which nobody has trained.
        UnknownNameError: there is no such score or normalizer.
    """
    found = [module for module in model.modules() if isinstance(getattr(module, "normaliser", None), Normalizer)]
    if (score or normalizer) and not found:
        raise ArgumentError("this run has no attention whose score or normalizer could be another")
    if normalizer is not None:
        part = choices.normalizer(normalizer)
        for module in found:
            module.normaliser = part  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    if score is not None:
        for module in found:
            old = module.score
            assert isinstance(old, Score)
            if [*old.parameters()]:
                raise ArgumentError(f"its score {type(old).__name__} has parameters, which the run was trained with: it stays")
            new = choices.score(score)
            if [*new.parameters()]:
                raise ArgumentError(f"the score {score!r} has parameters, which this run was not trained with")
            module.score = new
    return [f"{what} {name}" for what, name in (("score", score), ("normaliser", normalizer)) if name is not None]
