"""Judges of a run, the file of the heads judged so far, and the tables, for `attent ablate`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from pydantic import TypeAdapter, ValidationError

from attent import bounded
from attent.alignment.ablation import HeadCost, HeadJudge, Metric
from attent.cli.evaluation import classified_examples
from attent.cli.output import say
from attent.errors import ArgumentError, DataError, check_known, first_fault
from attent.runs.config import Task
from attent.runs.durable import check_links, claim, said_clearly, sync
from attent.search.settings import SearchSettings
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.examples import LabelledExamples
from attent.tasks.fill_mask.evaluation import known_words
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.head_judges import (
    ACCURACY,
    CLASS_LOSS,
    LOSS,
    PERPLEXITY,
    BlankJudge,
    BleuJudge,
    ClassJudge,
    LossJudge,
    NextTokenJudge,
)
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.tasks.translation.translator import Translator
from attent.text.readers import read_lines, read_with_references

# The metrics of each kind of run, the one that is meant first.
METRICS: dict[Task, tuple[str, ...]] = {
    "translate": ("loss", "bleu"),
    "classify": ("accuracy", "loss"),
    "text-generation": ("perplexity", "loss"),
    "fill-mask": ("accuracy", "perplexity", "loss"),
}
# Heads of the list below the table.
LISTED = 10
# Bytes that the file of the heads judged may have.
LARGEST = 2**26
_COST = TypeAdapter(HeadCost)


def head_judge(
    tool: Translator | Classifier | TextGenerator | FillMask,
    source: str,
    target: str | None,
    metric: str,
    *,
    limit: int | None,
    tokenize: str,
    settings: SearchSettings,
) -> HeadJudge:
    """Return the judge of a run on the examples of a file, without those that its model cannot read.

    Args:
        tool: the translator, classifier, text generator or mask filler of the run.
        source: lines to translate, labelled examples, or lines of text.
        target: the references of lines to translate.
        metric: one of the task's.
        limit: the most examples; all unless given.
        tokenize: sacreBLEU's tokenizer.
        settings: of the search, for BLEU.

    Raises:
        ArgumentError, DataError: the file cannot be read, or has no example that the model can read.
    """
    match tool:
        case Translator():
            assert target is not None
            lines = list(zip(*read_with_references(source, target), strict=True))[:limit]
            pairs = _readable(lines, [bool(pair[0]) and tool.can_read(*pair) for pair in lines], source)
            return LossJudge(tool, pairs) if metric == "loss" else BleuJudge(tool, pairs, tokenize, settings)
        case TextGenerator():
            texts = [line for line in read_lines(source) if line.strip()][:limit]
            longest = tool.model.longest if tool.stops_at_line_end else None
            is_readable = [longest is None or len(tool.tokenizer.encode(text)) < longest for text in texts]
            return NextTokenJudge(
                tool, _readable(texts, is_readable, source), PERPLEXITY if metric == "perplexity" else LOSS
            )
        case Classifier():
            examples = classified_examples(tool, source)
            examples = LabelledExamples(examples.rows, examples.all_classes, examples.selected[:limit])
            return ClassJudge(tool, examples, ACCURACY if metric == "accuracy" else CLASS_LOSS)
        case FillMask():
            texts = [line for line in read_lines(source) if line.strip()][:limit]
            encoded = [tool.tokenizer.encode(text) for text in texts]
            is_readable = [
                bool(known_words(tokens)) and len(tokens) <= (tool.longest or len(tokens)) for tokens in encoded
            ]
            metrics = {"accuracy": ACCURACY, "perplexity": PERPLEXITY, "loss": LOSS}
            reasons = "have no word that this model knows, or more than it can read"
            return BlankJudge(tool, _readable(texts, is_readable, source, reasons), metrics[metric])


def _readable(
    examples: Sequence[Any],
    is_readable: Sequence[bool],
    source: str,
    reasons: str = "are empty, or longer than this model can read",
) -> list[Any]:
    chosen = [example for example, readable in zip(examples, is_readable, strict=True) if readable]
    if len(chosen) < len(examples):
        say(f"{len(examples) - len(chosen):,} lines of {source} {reasons}: left out")
    if not chosen:
        raise ArgumentError(f"{source} has no line that this model can read")
    return chosen


def checked_metric(task: Task, metric: str | None) -> str:
    """Return the metric of a task, or the one that is meant unless one is given.

    Raises:
        UnknownNameError: the task has no such metric.
    """
    check_known(f"metric of a run for the task {task}", metric, METRICS[task])
    return metric or METRICS[task][0]


class AblationFile:
    """Heads that are judged, in a file of JSON lines that a command which was killed goes on with.

    Without a path they are only in memory. Its first line says of which weights, examples and settings it is.

    Args:
        path: of the file.
        settings: what the costs depend on, as JSON has it.

    Raises:
        ArgumentError: the file is of another run, other examples or settings.
        DataError: it is damaged.
        RunError: it cannot be written, or another process writes it.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.path, self.costs = path, dict[tuple[str, int], HeadCost]()
        self._file = None
        if path is None:
            return
        check_links(path)
        with said_clearly(path):
            self._file = open(path, "r+b" if path.exists() else "x+b", opener=bounded.regular)  # noqa: SIM115
        try:
            claim(self._file, path)
            self._read(json.dumps(settings, sort_keys=True), path)
        except BaseException:
            self._file.close()
            raise

    def _read(self, header: str, path: Path) -> None:
        assert self._file is not None
        try:
            # a line that a killed process did not end is written anew
            *lines, rest = bounded.text_of(cast(BufferedReader, self._file), LARGEST).split("\n")
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
        if lines and lines[0] != header:
            raise ArgumentError(f"{path} is of another run, of other examples or of other settings: name another file")
        for number, line in enumerate(lines[1:], start=2):
            try:
                cost = _COST.validate_json(line)
            except ValidationError as error:
                raise DataError(f"{path}, line {number} is damaged: {first_fault(error)}") from error
            self.costs[cost.module, cost.head] = cost
        self._file.seek(-len(rest.encode()), 2)
        self._file.truncate()
        if not lines:
            self._append(header)

    def add(self, cost: HeadCost) -> None:
        """Note a head that is judged."""
        self.costs[cost.module, cost.head] = cost
        if self._file is not None:
            self._append(json.dumps(asdict(cost)))

    def _append(self, line: str) -> None:
        assert self._file is not None and self.path is not None
        with said_clearly(self.path):
            self._file.write(f"{line}\n".encode())
            self._file.flush()
            sync(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def ranked(costs: Iterable[HeadCost]) -> list[HeadCost]:
    """Return heads by their cost, the largest first."""
    return sorted(costs, key=lambda cost: (-cost.cost, cost.module, cost.head))


def cost_lines(metric: Metric, costs: Sequence[HeadCost]) -> list[str]:
    """Return the costs as a table of modules × heads, and the heads that cost most, with intervals."""
    modules = list(dict.fromkeys(cost.module for cost in costs))
    by_head = {(cost.module, cost.head): cost.cost for cost in costs}
    heads = max(cost.head for cost in costs) + 1
    rows = [["", *map(str, range(heads))]]
    rows += [
        [
            module,
            *(_signed(metric, by_head[module, head]) if (module, head) in by_head else "" for head in range(heads)),
        ]
        for module in modules
    ]
    return [*_columns(rows), "", *ranking_lines(metric, ranked(costs)[:LISTED])]


def ranking_lines(metric: Metric, costs: Sequence[HeadCost]) -> list[str]:
    """Return a line for each head: its cost, the interval, and what its weights are like."""
    rows = [["module", "head", "cost", "95 % interval", "entropy, nats", "distance, tokens"]]
    for cost in costs:
        interval = f"{_signed(metric, cost.low)} to {_signed(metric, cost.high)}"
        measures = ("–" if measure is None else f"{measure:.2f}" for measure in (cost.entropy, cost.distance))
        rows.append([cost.module, str(cost.head), _signed(metric, cost.cost), interval, *measures])
    return _columns(rows)


def _signed(metric: Metric, number: float) -> str:
    return f"{number:+.{2 if metric.name in ('accuracy', 'BLEU') else 4}f}"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows with the first column to the left and the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
