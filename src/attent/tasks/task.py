"""What a recipe needs of a task: to read its corpus, to learn vocabularies, to encode, to measure a loss, and to judge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from attent.data.batches import Examples
from attent.data.tokenizer import Tokenizer
from attent.runs.config import RunConfig
from attent.training.loss import LossFunction

if TYPE_CHECKING:
    from attent.tasks.settings import RunSettings

# Scores by the name of what was judged, and by their own.
Results = dict[str, dict[str, float]]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Vocabularies:
    """What a run folder holds beside config and weights: known before training begins, and the same ever after.

    Args:
        kinds: of each tokenizer, by name.
        tokenizers: in the order of the kinds.
        files: further files by name, such as the names of classes.
        sizes: how many tokens there are to read, or numbers in each vector, and how many tokens or classes there are to tell; None
            where these are the ids of the first and of the last tokenizer.
        longest: the most places of a sequence that the model can read, where it is known; None where there is no limit.
    """

    kinds: Mapping[str, str]
    tokenizers: Sequence[Tokenizer] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    sizes: tuple[int, int] | None = None
    longest: int | None = None

    @classmethod
    def of(cls, config: RunConfig, tokenizers: Sequence[Tokenizer], files: Mapping[str, str]) -> Vocabularies:
        """What a run folder with this config holds."""
        return cls(config.tokenizers, tokenizers, files, config.sizes)


class TaskCorpus(Protocol):
    """What a model learns from and is judged on.

    Attributes:
        table: its settings, for the run folder, by the name of their table in a recipe.
        said: what was done with every line or file, to be said once all is encoded.
        lend: puts what `Task.encoded` made into a folder, from where `Task.borrowed` opens it as long as the corpus is kept.
    """

    @property
    def table(self) -> dict[str, Any]: ...

    @property
    def said(self) -> Callable[[], list[str]]: ...

    @property
    def lend(self) -> Callable[[Any], Path]: ...


class Evaluator(ABC):
    """How good a model is: while it is trained, and when it has been."""

    @abstractmethod
    def validate(self, say: Say) -> dict[str, float]:
        """Scores by name, on what is not trained on; the first is the one that training is judged by unless its settings name another.

        Args:
            say: shows a line to a person, such as an example of what the model does.
        """

    @abstractmethod
    def results(self, last: Mapping[str, float]) -> Results:
        """What the run folder's config holds as results.

        Args:
            last: the scores of the last validation.
        """


C = TypeVar("C", bound=TaskCorpus)


class Task(ABC, Generic[C]):
    """One kind of thing to learn. It holds nothing: settings, corpus and what was learnt are passed in and returned."""

    @property
    @abstractmethod
    def loss(self) -> LossFunction:
        """The loss of a batch of what `encoded` makes."""

    @abstractmethod
    def corpus(self, settings: RunSettings) -> C:
        """The corpus that the settings name, read.

        Raises:
            ArgumentError, DataError: it cannot be.
        """

    def held_out_digest(self, corpus: C) -> str | None:
        """A digest of what is not trained on, where a run must not go on when that has changed."""
        return None

    @abstractmethod
    def learn_vocabularies(self, corpus: C) -> Vocabularies:
        """The vocabularies, and whatever else has to be known of a corpus before a model is built."""

    @abstractmethod
    def encode(self, corpus: C, learnt: Vocabularies) -> Examples[Any]:
        """What is trained on; what the corpus alone needed for it may be let go."""

    @abstractmethod
    def open_shared(self, settings: RunSettings, folder: Path, learnt: Vocabularies) -> Examples[Any]:
        """What another process of this machine has encoded, and has lent by `Corpus.lend` in a folder."""

    @abstractmethod
    def evaluator(self, model: Any, corpus: C, learnt: Vocabularies, settings: RunSettings) -> Evaluator:
        """What judges a model; called before training, on the device where the model is."""
