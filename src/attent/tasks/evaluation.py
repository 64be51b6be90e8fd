"""Evaluators and their results."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from attent.errors import ArgumentError
from attent.search.settings import GREEDY, SearchSettings

# Scores by test set and score name.
Results = dict[str, dict[str, float]]
Say = Callable[[str], None]
Example = TypeVar("Example")
# Units of test set sizes.
SIZE_KEYS = ("pairs", "lines", "windows", "examples", "captions")
# Scores shown in a line of results, if present: key, title, format and unit.
SCORES = (
    ("exact_match", "exact match", "5.1f", " %"),
    ("year_alignment", "year alignment", "5.1f", " %"),
    ("AER", "AER", ".3f", ""),
    ("BLEU", "BLEU", "5.1f", ""),
    ("chrF2", "chrF2", "5.1f", ""),
    ("exact match", "exact match", "5.1f", " %"),
    ("loss", "loss", "5.3f", " nats per token"),
    ("accuracy", "top-1", "5.1f", " %"),
    ("F1", "F1", "5.1f", " %"),
    ("macro F1", "macro F1", "5.1f", " %"),
)


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Args:
        table: the results for machines, JSON-serializable.
        lines: the results for people.
    """

    table: Mapping[str, Any]
    lines: list[str]


class Evaluator(ABC):
    """Evaluates a model during training and after it.

    Attributes:
        search: search settings of a translation model.
        rows: number of validation examples if validation takes about as long per example as training; 0 if much less.
    """

    search: SearchSettings = GREEDY
    rows: int = 0

    @abstractmethod
    def validate(self, say: Say) -> dict[str, float]:
        """Return scores on the validation data by name.

        The first score is the criterion of training unless the settings name another.

        Args:
            say: shows a line to the user, such as an example of the model's output.
        """

    @abstractmethod
    def results(self, last: Mapping[str, float]) -> Results:
        """Return the results for the run folder's config.

        Args:
            last: the scores of the last validation.
        """


class TextScore(Protocol):
    """The score of a text, or of a translation given its source."""

    @property
    def log_probability(self) -> float:
        """The log-probability in nats."""
        ...

    @property
    def tokens(self) -> int:
        """The number of tokens, EOS included."""
        ...


def result_lines(results: Results) -> list[str]:
    """Format the results for people, one line per test set."""
    width = max(map(len, results), default=0)
    lines: list[str] = []
    for name, scores in results.items():
        unit_of = "example" if "examples" in scores else "token"
        cells = [
            f"{title} {scores[key]:{form}}{unit.replace('token', unit_of)}"
            for key, title, form, unit in SCORES
            if key in scores
        ]
        size = next((f"{scores[key]:,.0f} {key}" for key in SIZE_KEYS if key in scores), "")
        # only part of a long validation set is translated
        if (translated := scores.get("translated")) not in (None, scores.get("pairs")):
            size += f", {translated:,.0f} of them translated"
        lines.append(f"{name:{width}}  {'  '.join(cells)}  ({size})")
    return lines


def readable_examples(
    examples: Sequence[Example],
    is_readable: Sequence[bool],
    source: str,
    say: Say,
    reasons: str = "are empty, or longer than this model can read",
) -> list[Example]:
    """Return the examples of a file that a model can read, and report the others.

    Args:
        examples: the examples of the file.
        is_readable: whether the model can read each example.
        source: the file's name.
        say: shows a message to the user.
        reasons: the reasons why the others are left out, for the message.

    Raises:
        ArgumentError: the model can read none of the examples.
    """
    chosen = [example for example, readable in zip(examples, is_readable, strict=True) if readable]
    if len(chosen) < len(examples):
        say(f"{len(examples) - len(chosen):,} lines of {source} {reasons}: left out")
    if not chosen:
        raise ArgumentError(f"{source} has no line that this model can read")
    return chosen
