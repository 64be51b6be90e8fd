"""How well classes are told: accuracy, macro F1, and which are taken for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attent.errors import ShapeError


@dataclass(frozen=True)
class Confusion:
    """How often each class was taken for each.

    Args:
        counts: examples of class i that were told as class j, (C, C).
        labels: the classes' names.
    """

    counts: np.ndarray
    labels: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """The share of examples told right, in per cent."""
        return 100 * float(np.trace(self.counts)) / max(int(self.counts.sum()), 1)

    @property
    def f1(self) -> np.ndarray:
        """F1 of each class, 2·right / (told + there), in per cent, (C,); not a number of a class that is neither."""
        both = self.counts.sum(0) + self.counts.sum(1)
        return 100 * 2 * np.diag(self.counts) / np.where(both, both, np.nan)

    @property
    def macro_f1(self) -> float:
        """The mean of F1 over the classes that are there or told, in per cent."""
        return float(np.nanmean(self.f1)) if self.counts.any() else 0.0

    def top_confusions(self, count: int) -> list[tuple[str, str, int]]:
        """The most frequent mistakes: what it was, what it was taken for, and how often."""
        wrong = self.counts * ~np.eye(len(self.labels), dtype=bool)
        order = np.argsort(-wrong, axis=None, kind="stable")[:count]
        places = (divmod(int(place), len(self.labels)) for place in order)
        return [(self.labels[is_], self.labels[told], int(wrong[is_, told])) for is_, told in places if wrong[is_, told]]

    def table(self) -> list[str]:
        """The table as text: a row for each class that it was, a column for each that was told."""
        rows = [[label, *(str(n) if n else "·" for n in row)] for label, row in zip(self.labels, self.counts, strict=True)]
        cells = [["", *self.labels], *rows]
        widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]


def confusion(classes: Sequence[int] | np.ndarray, told: Sequence[int] | np.ndarray, labels: Sequence[str]) -> Confusion:
    """Compare the classes that examples have with those that were told.

    Args:
        classes: of each example, (N,).
        told: the same, as a model says.
        labels: the classes' names.

    Raises:
        ShapeError: there are not as many of both.
    """
    if len(classes) != len(told):
        raise ShapeError(f"each of {len(classes)} classes needs one that was told, got {len(told)}")
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (np.asarray(classes, np.int64), np.asarray(told, np.int64)), 1)
    return Confusion(counts, tuple(labels))
