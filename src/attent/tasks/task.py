"""The interface of a task: its corpus, its vocabularies, its loss and its evaluation. A recipe knows no more of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from attent.errors import ArgumentError, check_known
from attent.runs.config import RunConfig
from attent.runs.folder import read_files, read_tokenizers
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.settings import RunSettings
from attent.text.batches import Examples
from attent.text.tokenizer import Tokenizer
from attent.training.loss import LossFunction
from attent.training.settings import TrainingSettings

TASKS = {
    "translate": "attent.tasks.translation.task:TranslationTask",
    "fill-mask": "attent.tasks.fill_mask.task:MaskedLMTask",
    "classify": "attent.tasks.classification.task:ClassificationTask",
    "text-generation": "attent.tasks.text_generation.task:TextGenerationTask",
}
# Scores by the name of a test set, and by their own.
Results = dict[str, dict[str, float]]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Vocabularies:
    """Vocabularies and other facts of a corpus that are fixed before training, and stored in the run folder.

    Args:
        kinds: of each tokenizer, by name.
        tokenizers: in the order of the kinds.
        files: further files by name, such as the names of classes.
        sizes: of the input (ids, or numbers of a vector) and of the output (ids or classes); None if these are the
            sizes of the first and of the last tokenizer.
        spacing: of a translator's sources, see `attent.text.units`; None if unknown.
        longest: the most positions of a sequence that the model can read; None if unknown or without limit.
    """

    kinds: Mapping[str, str]
    tokenizers: Sequence[Tokenizer] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    sizes: tuple[int, int] | None = None
    longest: int | None = None
    spacing: float | None = None

    @classmethod
    def read(cls, path: Path | str, config: RunConfig) -> Vocabularies:
        """Read those of a run folder with this config.

        Raises:
            RunError: a file is missing or damaged.
        """
        return cls(
            config.tokenizers,
            read_tokenizers(path, config),
            read_files(path, config),
            config.sizes,
            spacing=config.spacing,
        )


class TaskCorpus(Protocol):
    """Data for training and evaluation."""

    @property
    def table(self) -> dict[str, Any]:
        """Return its settings for the run folder, by the name of their table in a recipe."""
        ...

    def report(self) -> list[str]:
        """Return lines about all that was read, once everything is encoded."""
        ...

    def share(self, examples: Any) -> Path:
        """Save the result of `Task.encode` to a folder, for `Task.open_shared`.

        The folder lives as long as the corpus.
        """
        ...


class Evaluator(ABC):
    """Evaluates a model during training and after it.

    Attributes:
        search: how a model that translates does.
        rows: examples of a validation that takes about as long as to train on as many; 0 if it takes much less.
    """

    search: SearchSettings = GREEDY
    rows: int = 0

    @abstractmethod
    def validate(self, say: Say) -> dict[str, float]:
        """Return scores on the validation data by name; the first one judges training unless settings name another.

        Args:
            say: shows a line to the user, such as an example of the model's output.
        """

    @abstractmethod
    def results(self, last: Mapping[str, float]) -> Results:
        """Return the results for the run folder's config.

        Args:
            last: the scores of the last validation.
        """


C = TypeVar("C", bound=TaskCorpus)


class Task(ABC, Generic[C]):
    """A kind of learning problem. It has no state: settings, corpus and vocabularies are passed in and returned.

    Attributes:
        loss: of a batch of `encode`'s examples.
    """

    loss: LossFunction

    def loss_for(self, training: TrainingSettings) -> LossFunction:
        """Return the loss with these settings.

        Raises:
            ArgumentError: this task has none with them.
        """
        if training.r_drop:
            raise ArgumentError("r_drop is for the task translate")
        return self.loss

    @abstractmethod
    def corpus(self, settings: RunSettings) -> C:
        """Read or generate the corpus of the settings.

        Raises:
            ArgumentError, DataError: it cannot be read.
        """

    def held_out_digest(self, corpus: C) -> str | None:
        """Return a digest of the held-out data if a run must not continue when it has changed."""
        return None

    @abstractmethod
    def learn_vocabularies(self, corpus: C) -> Vocabularies:
        """Learn the vocabularies, and all else of the corpus that building a model needs."""

    @abstractmethod
    def encode(self, corpus: C, vocabularies: Vocabularies) -> Examples[Any]:
        """Return the training examples; the corpus may free data that only this needed."""

    @abstractmethod
    def open_shared(self, settings: RunSettings, folder: Path, vocabularies: Vocabularies) -> Examples[Any]:
        """Open the examples that another process of this machine encoded and saved by `TaskCorpus.share`."""

    @abstractmethod
    def evaluator(self, model: Any, corpus: C, vocabularies: Vocabularies, settings: RunSettings) -> Evaluator:
        """Return the evaluator of a model; called before training, with the model on its device."""


def task_of(name: str) -> Task[Any]:
    """Return the task of this name.

    Raises:
        UnknownNameError: there is no such task.
    """
    check_known("task", name, TASKS)
    module, _, task = TASKS[name].partition(":")
    return getattr(import_module(module), task)()
