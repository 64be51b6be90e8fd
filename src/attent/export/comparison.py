"""Comparison of another engine's translations with our own on a sample of lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from attent.data.dates import DatesSettings, dates
from attent.data.readers import read_lines, read_pairs
from attent.data.report import ReadReport
from attent.data.tokenizer import SPECIALS, Tokenizer
from attent.decoding.settings import SearchSettings
from attent.decoding.translator import Engine
from attent.errors import AttentError
from attent.runs.config import RunConfig

# Lines to compare: enough to show differences, few enough to take seconds.
LINES = 64
SEARCHES = {"greedy": SearchSettings(), "beam 5": SearchSettings(beam=5)}
# The most tokens of a random line, for runs whose own text is not available.
MAX_RANDOM_TOKENS = 12


@dataclass(frozen=True)
class Difference:
    """A line with different translations: our own and the engine's."""

    source: str
    expected: str
    actual: str


@dataclass(frozen=True)
class Comparison:
    """Differences between two engines' translations of a sample.

    Args:
        lines: number of lines.
        differences: lines that differ, by the name of the search.
    """

    lines: int
    differences: dict[str, list[Difference]]

    def report(self, engine: str, limit: int = 3) -> list[str]:
        """Return a line for each search, and the first few differences."""
        report = []
        for search, differences in self.differences.items():
            report.append(f"{search}: {len(differences)} of {self.lines} lines differ from attent's own")
            for line in differences[:limit]:
                report += [f"  {line.source}", f"    attent: {line.expected}", f"    {engine}: {line.actual}"]
        return report

    def counts(self) -> dict[str, Any]:
        """Return the numbers of lines and of differences, for the manifest."""
        return {"lines": self.lines} | {search: len(differences) for search, differences in self.differences.items()}


def compare(reference: Engine, engine: Engine, sample: Sequence[str]) -> Comparison:
    """Translate a sample by both engines, greedily and with a beam of 5."""
    differences: dict[str, list[Difference]] = {}
    for name, settings in SEARCHES.items():
        results = zip(sample, reference.search(sample, settings), engine.search(sample, settings), strict=True)
        lines = (Difference(source, expected[0].text, actual[0].text) for source, expected, actual in results)
        differences[name] = [line for line in lines if line.expected != line.actual]
    return Comparison(len(sample), differences)


def sample_of(config: RunConfig, tokenizer: Tokenizer, file: Path | None = None) -> list[str]:
    """Return lines to compare on: those of a file, else the run's validation sources, else random pieces of the tokenizer.

    Args:
        config: of the run.
        tokenizer: of its sources.
        file: lines of text.

    Raises:
        DataError: the file cannot be read.
    """
    sample = (line for line in (read_lines(file) if file is not None else _validation(config)) if line)
    return list(islice(sample, LINES)) or _random_lines(tokenizer)


def _validation(config: RunConfig) -> Iterator[str]:
    if "dates" in config.corpus:
        settings = DatesSettings.model_validate(config.corpus["dates"]).model_copy(update={"training_pairs": 1})
        yield from (pair.source for pair in dates(settings).validation)
        return
    text = config.corpus.get("text", {})
    try:
        if file := text.get("valid_source"):
            yield from read_lines(file)
        elif file := text.get("valid"):
            yield from (pair.source for _, pair in read_pairs(file, ReadReport(file)))
    except AttentError:
        # the files of a run may have been deleted
        return


def _random_lines(tokenizer: Tokenizer) -> list[str]:
    """Return lines of random pieces, the same every time."""
    generator = np.random.default_rng(0)
    lines = (generator.integers(SPECIALS, tokenizer.size, generator.integers(1, MAX_RANDOM_TOKENS)).tolist() for _ in range(LINES))
    return [line for line in map(tokenizer.decode, lines) if line] if tokenizer.size > SPECIALS else []
