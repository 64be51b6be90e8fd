"""What was read of a file of word vectors, and what was done with each line that is not like the others."""

from __future__ import annotations

from dataclasses import dataclass, field

from attent.data.readers import ReadReport

# What is done with an entry, as a report says it.
EMPTY_LINE, OTHER_WIDTH, NO_NUMBER = "empty line", "not as many numbers as the others", "something else where a number belongs"
NOT_FINITE, AGAIN = "not a finite number (NaN or infinity)", "a word that came before"
NOT_UTF8 = "word that is not UTF-8, its bytes replaced by �"


@dataclass
class VectorsReport(ReadReport):
    """What was read of a file of word vectors.

    Args:
        unit: what is counted and numbered from 1: lines, the first of which may be a header, or in the binary form words.
        words: those that have a vector now.
        width: numbers of each vector.
        unwanted: how many were passed over unread, for nobody asked for them.
        remarks: on the file as a whole.
    """

    unit: str = "line"
    words: int = 0
    width: int = 0
    unwanted: int = 0
    remarks: list[str] = field(default_factory=list)

    def summary(self) -> list[str]:
        """The report for a person, line by line."""
        rest = f", {self.unwanted:,} not wanted" * bool(self.unwanted)
        return [
            f"{self.name}: {self.lines:,} {self.unit}s read, {self.words:,} vectors of {self.width} numbers kept{rest}",
            *(f"  {remark}" for remark in self.remarks),
            *(f"  {tally.count:,} dropped: {reason} ({tally.location(self.unit)})" for reason, tally in self.dropped.items()),
            *(f"  {tally.count:,} kept: {what} ({tally.location(self.unit)})" for what, tally in self.noted.items()),
        ]
