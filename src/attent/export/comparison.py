"""Whether another engine translates as our own does: a sample of lines, by both, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from attent.data.batches import BatchSize
from attent.data.dates import DatesSettings, dates
from attent.data.readers import read_lines, read_pairs
from attent.data.report import ReadReport
from attent.data.tokenizer import SPECIALS, Tokenizer
from attent.decoding.hypothesis import Translation
from attent.decoding.settings import SearchSettings
from attent.errors import AttentError
from attent.runs.config import RunConfig

# Lines compared: enough to show what differs, few enough to be done in seconds.
LINES = 64
SEARCHES = {"greedy": SearchSettings(), "beam 5": SearchSettings(beam=5)}
# Tokens of a line made up where the run's own text is not to be had.
MADE_UP = 12


class Engine(Protocol):
    """What translates: `attent.decoding.translator.Translator`, or another engine in its place."""

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer

    @property
    def longest_source(self) -> int | None:
        """The most tokens that a text may have to be translated; None where there is no limit."""
        ...

    def refusal(self, text: str) -> str | None:
        """Why a text has an empty translation although it is not empty; None where it has another."""
        ...

    def search(
        self, texts: Sequence[str], settings: SearchSettings = ..., *, prefixes: Sequence[str] | None = ..., batch: int | BatchSize = ...
    ) -> list[list[Translation]]:
        """The n_best translations of each text with their scores, the best first; see Translator."""
        ...


@dataclass(frozen=True)
class Difference:
    """A line that two engines translate in two ways."""

    source: str
    expected: str
    actual: str


@dataclass(frozen=True)
class Comparison:
    """How two engines' translations of a sample compare.

    Args:
        lines: how many were translated.
        differences: those that differ, by the name of the search.
    """

    lines: int
    differences: dict[str, list[Difference]]

    def report(self, engine: str, shown: int = 3) -> list[str]:
        """The comparison for a person: a line for each search, and the first few differences."""
        said = []
        for search, found in self.differences.items():
            said.append(f"{search}: {len(found)} of {self.lines} lines differ from attent's own")
            for one in found[:shown]:
                said += [f"  {one.source}", f"    attent: {one.expected}", f"    {engine}: {one.actual}"]
        return said

    def counts(self) -> dict[str, Any]:
        """The comparison in numbers, for the manifest."""
        return {"lines": self.lines} | {search: len(found) for search, found in self.differences.items()}


def compare(ours: Engine, theirs: Engine, sample: Sequence[str]) -> Comparison:
    """Translate a sample by both engines, greedily and with a beam of 5."""
    differences: dict[str, list[Difference]] = {}
    for name, settings in SEARCHES.items():
        both = zip(sample, ours.search(sample, settings), theirs.search(sample, settings), strict=True)
        texts = ((source, mine[0].text, other[0].text) for source, mine, other in both)
        differences[name] = [Difference(*found) for found in texts if found[1] != found[2]]
    return Comparison(len(sample), differences)


def sample_of(config: RunConfig, tokenizer: Tokenizer, file: Path | None = None) -> list[str]:
    """Lines to compare on: those of a file, else what the run was validated on, else some made up of the tokenizer's pieces.

    Args:
        config: of the run.
        tokenizer: of its sources.
        file: lines of text.

    Raises:
        DataError: the file cannot be read.
    """
    found = (line for line in (read_lines(file) if file is not None else _validation(config)) if line)
    return list(islice(found, LINES)) or _made_up(tokenizer)


def _validation(config: RunConfig) -> Iterator[str]:
    if "dates" in config.corpus:
        few = DatesSettings.model_validate(config.corpus["dates"]).model_copy(update={"training_pairs": 1})
        yield from (pair.source for pair in dates(few).validation)
        return
    text = config.corpus.get("text", {})
    try:
        if file := text.get("valid_source"):
            yield from read_lines(file)
        elif file := text.get("valid"):
            yield from (pair.source for _, pair in read_pairs(file, ReadReport(file)))
    except AttentError:
        # the files of a run may be gone by now
        return


def _made_up(tokenizer: Tokenizer) -> list[str]:
    """Lines of pieces drawn at random, always the same."""
    generator = np.random.default_rng(0)
    drawn = (generator.integers(SPECIALS, tokenizer.size, generator.integers(1, MADE_UP)).tolist() for _ in range(LINES))
    return [line for line in map(tokenizer.decode, drawn) if line] if tokenizer.size > SPECIALS else []
