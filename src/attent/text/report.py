"""Reports on files that were read: how many lines were dropped or noted, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

# Line numbers that a report names for each reason.
LISTED_LINES = 3


@dataclass
class LineTally:
    """A count of lines, and the numbers of the first of them."""

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
        name: of the file or the files.
        lines: how many were read.
        dropped: the lines that were left out, by reason.
        noted: the lines that were kept with a remark, by remark.
    """

    name: str
    lines: int = 0
    dropped: dict[str, LineTally] = field(default_factory=dict)
    noted: dict[str, LineTally] = field(default_factory=dict)

    @property
    def kept_count(self) -> int:
        """Lines that were not dropped."""
        return self.lines - sum(tally.count for tally in self.dropped.values())

    def drop(self, reason: str, line: int) -> None:
        """Record that a line was left out."""
        self.dropped.setdefault(reason, LineTally()).add(line)

    def note(self, remark: str, line: int) -> None:
        """Record a remark on a line that was kept."""
        self.noted.setdefault(remark, LineTally()).add(line)

    def summary(self) -> list[str]:
        """Return the report for a person, line by line."""
        return self._summary(f"{self.lines:,} lines read, {self.kept_count:,} kept", "line", "kept as written")

    def one_line(self) -> str:
        """Return the report for an error message."""
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


@dataclass
class VectorsReport(ReadReport):
    """A report on a file of word vectors.

    Args:
        unit: what is counted and numbered from 1: lines, the first of which may be a header, or words in a binary file.
        words: how many have a vector.
        width: numbers of each vector.
        skipped: how many entries were of words outside the vocabulary.
        remarks: on the file.
    """

    unit: str = "line"
    words: int = 0
    width: int = 0
    skipped: int = 0
    remarks: list[str] = field(default_factory=list)

    def summary(self) -> list[str]:
        """Return the report for a person, line by line."""
        skipped = f", {self.skipped:,} not wanted" * bool(self.skipped)
        counts = f"{self.lines:,} {self.unit}s read, {self.words:,} vectors of {self.width} numbers kept{skipped}"
        first, *rest = self._summary(counts, self.unit, "kept")
        return [first, *(f"  {remark}" for remark in self.remarks), *rest]
