"""Results of an ablation: the file of the heads judged so far, and tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from pydantic import TypeAdapter, ValidationError

from attent import bounded
from attent.alignment.ablation import Ablation, HeadCost, Metric, head_summaries
from attent.errors import ArgumentError, DataError, first_fault
from attent.runs.durable import check_links, claim, said_clearly, sync

# Heads of the list below the table.
LISTED = 10
# Bytes that the file of the heads judged may have.
LARGEST = 2**26
_COST = TypeAdapter(HeadCost)


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


def judge_heads(ablation: Ablation, results: AblationFile, say: Callable[[str], None]) -> list[HeadCost]:
    """Return the costs of all heads, of which those in a file are not judged again.

    Args:
        ablation: judges a head.
        results: the file, to which costs are added.
        say: shows the progress to the user.
    """
    summaries = head_summaries(ablation.judge)
    examples = f"{len(ablation.judge):,} examples"
    say(f"{len(summaries)} heads, {len(results.costs)} of them judged before, on {examples}")
    for number, ((module, head), summary) in enumerate(summaries.items(), start=1):
        if (module, head) not in results.costs:
            results.add(ablation.cost(module, head, summary))
            say(f"{number} of {len(summaries)}: {module}, head {head}")
    return [results.costs[key] for key in summaries]


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
