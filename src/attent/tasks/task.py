"""The interface of a task, used by training and the commands.

A task is a subfolder of attent/tasks whose task.py defines a subclass of `Task`; tasks are found by scanning that
folder.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar, Generic, NoReturn, Protocol, TypeVar

from pydantic import BaseModel

import attent.tasks
from attent.alignment.ablation import HeadJudge
from attent.errors import ArgumentError, RunError, check_known
from attent.runs.config import CONFIG, RunConfig, read_config
from attent.runs.folder import Run, read, read_files, read_tokenizers
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.evaluation import Evaluation, Evaluator, Results, Say, TextScore, result_lines
from attent.tasks.suggestions import Tables, count_lines, suggest
from attent.text.batches import Examples
from attent.text.tokenizer import Tokenizer, unknown_pieces
from attent.training.loss import LossFunction
from attent.training.settings import TrainingSettings
from attent.views.build_scene import build_scene
from attent.views.scene import Scene

# The task of a run whose settings name none.
DEFAULT_TASK = "translate"


class TaskSettings(Protocol):
    """The settings of a run; see `attent.tasks.settings.RunSettings`."""

    def __getattr__(self, name: str) -> Any:
        """Return the training settings, or those of a corpus table."""


class TaskRun(Protocol):
    """A run folder, loaded when its tool is first used; see `attent.tasks.loading.StoredRun`."""

    path: Path
    config: RunConfig

    @property
    def tool(self) -> Any:
        """The translator, language model or other tool that `attent.load` returns."""

    def refuse(self) -> NoReturn:
        """Raise the error for a command that does not suit the run."""
        ...

    def validate(self, say: Say, search: SearchSettings = GREEDY) -> Results:
        """Evaluate the run on the validation part of its corpus."""
        ...


@dataclass(frozen=True)
class Vocabularies:
    """Vocabularies and other facts about a corpus, fixed before training and stored in the run folder.

    Args:
        kinds: the kind of each tokenizer, by name.
        tokenizers: in the order of the kinds.
        files: further files by name, such as the names of classes.
        sizes: sizes of the input (ids or vector elements) and of the output (ids or classes); None for those of the
            first and the last tokenizer.
        spacing: spacing of a translator's sources, see `attent.text.units`; None if unknown.
        longest: maximum sequence length that the model can read; None if unknown or unlimited.
    """

    kinds: Mapping[str, str]
    tokenizers: Sequence[Tokenizer] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    sizes: tuple[int, int] | None = None
    longest: int | None = None
    spacing: float | None = None

    @classmethod
    def read(cls, path: Path | str, config: RunConfig) -> Vocabularies:
        """Read the vocabularies of a run folder with this config.

        Raises:
            RunError: a file is missing or damaged.
        """
        tokenizers, files = read_tokenizers(path, config), read_files(path, config)
        return cls(config.tokenizers, tokenizers, files, config.sizes, spacing=config.spacing)


class TaskCorpus(Protocol):
    """Data for training and evaluation."""

    @property
    def table(self) -> dict[str, Any]:
        """Return the corpus settings for the run folder, by their table name in a recipe."""
        ...

    def report(self) -> list[str]:
        """Return report lines on the data read, once everything is encoded."""
        ...

    @property
    def folder(self) -> Path | None:
        """The folder of the encoded examples, which other processes on this machine open; None if they have none."""
        ...


C = TypeVar("C", bound=TaskCorpus)


class Learning(ABC, Generic[C]):
    """The learning side of a task, used by training.

    It is stateless: settings, corpus and vocabularies are passed in and returned.

    Attributes:
        tables: the settings classes of its corpora, by table name in a recipe. A recipe may omit the first table if all
            of its settings have defaults.
        table_defaults: values in these tables that override the defaults of their settings.
        loss: the loss function for a batch of `encode`'s examples.
    """

    tables: ClassVar[Mapping[str, type[BaseModel]]]
    table_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    loss: LossFunction

    @abstractmethod
    def model_settings(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the model settings that this task requires.

        A recipe may omit them but must not contradict them.

        Args:
            tables: the recipe's tables; missing ones may be None.
        """

    def check(self, settings: TaskSettings) -> None:
        """Check settings across tables, beyond the checks of each table.

        Raises:
            ValueError: two settings are incompatible.
        """

    def suggest(self, files: Mapping[str, str], minutes: float | None = None) -> tuple[Tables, int]:
        """Return suggested tables for a corpus in files, and the number of its examples.

        Args:
            files: file names, by their keys in the corpus table.
            minutes: see `attent.tasks.suggestions.suggest`.

        Raises:
            ArgumentError, DataError: the files are inconsistent or cannot be read.
        """
        lines, _ = count_lines(files)
        return suggest(lines, minutes), lines

    def loss_for(self, training: TrainingSettings) -> LossFunction:
        """Return the loss function for these training settings.

        Raises:
            ArgumentError: this task does not support them.
        """
        if training.teacher:
            raise ArgumentError("teacher is for the task translate")
        return self.loss

    def inherited_tables(self, settings: TaskSettings, start: RunConfig) -> dict[str, Any]:
        """Return corpus tables with values that the settings omit, taken from the run that training starts from."""
        return {}

    @abstractmethod
    def corpus(self, settings: TaskSettings) -> C:
        """Read or generate the corpus of the settings.

        Raises:
            ArgumentError, DataError: the corpus cannot be read.
        """

    def held_out_digest(self, corpus: C) -> str | None:
        """Return a digest of the held-out data if a run must not resume after it has changed, else None."""
        return None

    @abstractmethod
    def learn_vocabularies(self, corpus: C) -> Vocabularies:
        """Learn the vocabularies and other facts about the corpus that are needed to build a model."""

    @abstractmethod
    def encode(self, corpus: C, vocabularies: Vocabularies) -> Examples[Any]:
        """Return the training examples; the corpus may then free data that is no longer needed."""

    def open_shared(self, settings: TaskSettings, folder: Path, vocabularies: Vocabularies) -> Examples[Any]:
        """Open the examples that another process on this machine encoded, in the folder of its corpus.

        By default, read and encode the corpus again.
        """
        return self.encode(self.corpus(settings), vocabularies)

    @abstractmethod
    def evaluator(self, model: Any, corpus: C, vocabularies: Vocabularies, settings: TaskSettings) -> Evaluator:
        """Return the evaluator of a model; called before training, with the model on its device."""


class Inference:
    """The inference side of a task, used by commands to load, evaluate, ablate, score and show its runs.

    A command passes on the options that a method accepts as keyword arguments and rejects the others.

    Attributes:
        load: loads a run folder as `attent.load` does, called as (path, device, *, trust_code, dtype).
        metrics: names of the metrics of `judge`, the default first; empty if heads cannot be evaluated.
        other_data: hint in the message for a missing corpus: how to evaluate a run on other data.
    """

    load: Callable[..., Any]
    metrics: ClassVar[tuple[str, ...]] = ()
    other_data: ClassVar[str] = ""

    def evaluate(self, run: TaskRun, say: Say) -> Evaluation:
        """Evaluate a run on the held-out data of its corpus.

        Args:
            run: the run.
            say: shows a message to the user.

        Raises:
            ArgumentError: the data cannot be read again, or options are incompatible.
            DataError: the data cannot be read or has changed.
        """
        results = run.validate(say)
        return Evaluation(results, result_lines(results))

    def judge(self, run: TaskRun, file: str, metric: str, say: Say, *, limit: int | None = None) -> HeadJudge:
        """Return a judge of a run's heads on the examples of a file, except those that the model cannot read.

        Args:
            run: the run.
            file: the file of examples.
            metric: one of `metrics`.
            say: shows a message to the user.
            limit: maximum number of examples; all by default.

        Raises:
            ArgumentError, DataError: the file cannot be read, or has no example that the model can read.
            RunError: heads of this kind of run cannot be evaluated.
        """
        run.refuse()

    def scores(self, run: TaskRun, lines: Iterable[str], name: str) -> Iterator[TextScore]:
        """Yield the score of each line.

        Args:
            run: the run.
            lines: lines of text, or of source, tab and target.
            name: name of their file, for error messages.

        Raises:
            DataError: a line cannot be read.
            RunError: this kind of run has no scores.
        """
        run.refuse()

    def scene(self, run: TaskRun, text: str, *, gradients: bool = False) -> Scene:
        """Return the attention of a run while it reads a text.

        Args:
            run: the run.
            text: the text to read.
            gradients: whether to also show the weights multiplied by the gradients of the output with respect to them.

        Raises:
            ArgumentError, DataError: the model cannot read the text.
            RunError: this kind of run does not read text.
        """
        if not hasattr(run.tool, "map"):
            run.refuse()
        return build_scene(run.tool.map(text, gradients=gradients), title=text)

    def unknown_words(self, run: TaskRun, text: str) -> list[str]:
        """Return the words or signs of a text that a run does not know, without repetition, in order."""
        tokenizer = getattr(run.tool, "tokenizer", None)
        return [] if tokenizer is None else [piece.strip() or piece for piece in unknown_pieces(text, tokenizer)]


class Task(Learning[C], Inference):
    """A kind of learning problem.

    Attributes:
        name: its name in settings, in run folders and for the option --task.
        aliases: other names accepted by --task.
        does: a verb for the action of its runs, such as "translates".
        goal: an infinitive for the goal of training, such as "translate".
        command: the command that uses a run.
        tokenizers: the names of its tokenizers.
        needs_tokenizers: True if all runs have these tokenizers, False if only those that read texts do.
        model_kinds: the kinds of models that its runs may have.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    does: ClassVar[str]
    goal: ClassVar[str]
    command: ClassVar[str]
    tokenizers: ClassVar[tuple[str, ...]] = ("text",)
    needs_tokenizers: ClassVar[bool] = True
    model_kinds: ClassVar[tuple[str, ...]]

    def check_config(self, path: Path | str, config: RunConfig) -> None:
        """Check that a config belongs to a run of this task.

        Raises:
            RunError: it has another task, whose command the message names, or is damaged.
        """
        if config.task != self.name:
            raise refusal(path, config)
        if set(config.tokenizers) != set(self.tokenizers) and (config.tokenizers or self.needs_tokenizers):
            fault = f"has the tokenizers {', '.join(self.tokenizers)}, got {', '.join(config.tokenizers)}"
        elif config.model.kind not in self.model_kinds:
            fault = f"has no model of kind {config.model.kind!r}"
        else:
            return
        raise RunError(f"{Path(path) / CONFIG} is damaged: a run that {self.does} {fault}")

    def sizes(self, config: RunConfig, tokenizers: Sequence[Tokenizer]) -> tuple[int, int]:
        """Return the sizes that a run's config must have, given its tokenizers (at least one)."""
        return tokenizers[0].size, tokenizers[-1].size

    def read(self, path: Path | str, *, trust_code: bool = False) -> Run:
        """Read a run folder of this task.

        Raises:
            RunError: it is missing, damaged, or written by a newer version, has another task, or names code and is not
                trusted.
        """
        self.check_config(path, read_config(path))
        run = read(path, trust_code)
        tokenizers, sizes = [*run.tokenizers.values()], run.config.sizes
        if sizes is not None and tokenizers and sizes != (expected := self.sizes(run.config, tokenizers)):
            raise RunError(
                f"{Path(path) / CONFIG} is damaged: its sizes must be {expected[0]} and {expected[1]}, as its "
                f"tokenizers say, got {sizes[0]} and {sizes[1]}"
            )
        return run

    def metric(self, name: str | None) -> str:
        """Return the metric with this name, or the default metric for None; empty if the task has none.

        Raises:
            UnknownNameError: the task has no such metric.
        """
        check_known(f"metric of a run for the task {self.name}", name, self.metrics)
        return name or next(iter(self.metrics), "")


def refusal(path: Path | str, config: RunConfig) -> RunError:
    """Return the error for a command that does not suit a run; the message names the command that does."""
    task = task_of_run(path, config)
    return RunError(f"{path} {task.does}: {task.command.format(run=path)}")


@cache
def tasks() -> dict[str, Task[Any]]:
    """Return all tasks by name: the default first, then those that always read text, then the others."""
    by_name: dict[str, Task[Any]] = {}
    for folder in iter_modules(attent.tasks.__path__, "attent.tasks."):
        if folder.ispkg and find_spec(f"{folder.name}.task"):
            module = import_module(f"{folder.name}.task")
            for _, kind in inspect.getmembers(module, inspect.isclass):
                if issubclass(kind, Task) and kind.__module__ == module.__name__:
                    by_name[kind.name] = kind()
    order = sorted(by_name.values(), key=lambda task: (task.name != DEFAULT_TASK, not task.needs_tokenizers))
    return {task.name: task for task in order}


def task_of(name: str) -> Task[Any]:
    """Return the task of this name.

    Raises:
        UnknownNameError: there is no such task.
    """
    check_known("task", name, tasks())
    return tasks()[name]


def task_of_run(path: Path | str, config: RunConfig) -> Task[Any]:
    """Return the task of a run.

    Raises:
        RunError: its task is unknown.
    """
    if config.task not in tasks():
        raise RunError(f"{path} cannot be loaded: its task {config.task!r} is unknown")
    return tasks()[config.task]


def options_of(method: Callable[..., Any]) -> list[str]:
    """Return the names of a task method's keyword arguments, which are options of its command."""
    parameters = inspect.signature(method).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
