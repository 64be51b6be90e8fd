"""Pairs of source and target text, corpora and gold alignments, and reports on the files that they were read from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

Link = tuple[int, int]
# How many line numbers a report lists for each reason.
LISTED_LINES = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """A source text and the target text that it translates to.

    Args:
        source: the text to translate.
        target: its translation.
        links: the gold alignment, if any, as (source character, target character) positions, both counted in code
            points from 0.
    """

    source: str
    target: str
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class TranslationCorpus:
    """Pairs for training, validation and tests.

    Args:
        train: the training pairs.
        validation: the pairs with which training selects the best checkpoint.
        held_out: the test sets by name, in the order in which they are reported.
    """

    train: Sequence[Pair]
    validation: Sequence[Pair]
    held_out: Mapping[str, Sequence[Pair]]


@dataclass(frozen=True, slots=True)
class Gold:
    """The gold links of a pair, each (source, target), from 0.

    An aligner must find the sure links and may find the possible ones. Source: Och and Ney (2003), §5,
    https://aclanthology.org/J03-1002: links that annotators agree on are sure, ambiguous ones are possible.

    Args:
        sure: the sure links S.
        possible: the possible links P, which include S.
    """

    sure: frozenset[Link]
    possible: frozenset[Link]

    @classmethod
    def of(cls, sure: Collection[Link], possible: Collection[Link] = ()) -> Gold:
        """Make gold links from S and P; P need not repeat S."""
        return cls(frozenset(sure), frozenset(possible) | frozenset(sure))


def add_tag(tag: str, text: str) -> str:
    """Prefix a source text with a tag, as in `fr | mardi 3 mars 2026`.

    Args:
        tag: the language or locale of the text.
        text: the text.
    """
    return f"{tag} | {text}"


@dataclass
class LineTally:
    """A count of lines and the numbers of the first few."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, line: int) -> None:
        """Count one more line, numbered from 1."""
        self.count += 1
        if len(self.first) < LISTED_LINES:
            self.first.append(line)

    def location(self, unit: str = "line") -> str:
        """Return `line 7`, or `lines 7, 9, 12, …`."""
        return (
            f"{unit}{'s' * (self.count > 1)} {', '.join(map(str, self.first))}{', …' * (self.count > len(self.first))}"
        )


@dataclass
class ReadReport:
    """A report on a file of texts.

    Args:
        name: the name of the file or files.
        lines: the number of lines read.
        dropped: the lines that were left out, by reason.
        noted: the lines that were kept with a remark, by remark.
    """

    name: str
    lines: int = 0
    dropped: dict[str, LineTally] = field(default_factory=dict)
    noted: dict[str, LineTally] = field(default_factory=dict)

    @property
    def kept_count(self) -> int:
        """The number of lines that were not dropped."""
        return self.lines - sum(tally.count for tally in self.dropped.values())

    def drop(self, reason: str, line: int) -> None:
        """Record that a line was left out."""
        self.dropped.setdefault(reason, LineTally()).add(line)

    def note(self, remark: str, line: int) -> None:
        """Record a remark on a line that was kept."""
        self.noted.setdefault(remark, LineTally()).add(line)

    def summary(self) -> list[str]:
        """Return the lines of a human-readable report."""
        return self._summary(f"{self.lines:,} lines read, {self.kept_count:,} kept", "line", "kept as written")

    def one_line(self) -> str:
        """Return the report as one line for error messages."""
        return "; ".join(line.strip() for line in self.summary())

    def _summary(self, counts: str, unit: str, noted: str) -> list[str]:
        return [
            f"{self.name}: {counts}",
            *(
                f"  {tally.count:,} dropped: {reason} ({tally.location(unit)})"
                for reason, tally in self.dropped.items()
            ),
            *(f"  {tally.count:,} {noted}: {remark} ({tally.location(unit)})" for remark, tally in self.noted.items()),
        ]
