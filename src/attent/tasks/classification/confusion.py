"""Metrics of a classifier: accuracy, macro F1 and the confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attent.errors import ShapeError


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix.

    Args:
        counts: examples of class i that were predicted as class j, (C, C).
        labels: the names of the classes.
    """

    counts: np.ndarray
    labels: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """Return the share of correct predictions, in per cent."""
        return 100 * float(np.trace(self.counts)) / max(int(self.counts.sum()), 1)

    @property
    def f1(self) -> np.ndarray:
        """Return F1 of each class, 2·correct / (predicted + actual), in per cent, (C,).

        NaN for a class that never occurs.
        """
        predicted_and_actual = self.counts.sum(0) + self.counts.sum(1)
        return 100 * 2 * np.diag(self.counts) / np.where(predicted_and_actual, predicted_and_actual, np.nan)

    @property
    def macro_f1(self) -> float:
        """Return the mean of F1 over the classes that occur, in per cent."""
        return float(np.nanmean(self.f1)) if self.counts.any() else 0.0

    def top_confusions(self, count: int) -> list[tuple[str, str, int]]:
        """Return the most frequent mistakes: actual class, predicted class and count."""
        wrong = self.counts * ~np.eye(len(self.labels), dtype=bool)
        order = np.argsort(-wrong, axis=None, kind="stable")[:count]
        cells = (
            (row, column)
            for row, column in (divmod(int(index), len(self.labels)) for index in order)
            if wrong[row, column]
        )
        return [(self.labels[row], self.labels[column], int(wrong[row, column])) for row, column in cells]

    def table(self) -> list[str]:
        """Return the matrix as lines of text: a row for each actual class, a column for each predicted one."""
        rows = [
            [label, *(str(n) if n else "·" for n in row)] for label, row in zip(self.labels, self.counts, strict=True)
        ]
        cells = [["", *self.labels], *rows]
        widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]


def confusion(
    classes: Sequence[int] | np.ndarray, predictions: Sequence[int] | np.ndarray, labels: Sequence[str]
) -> Confusion:
    """Count predictions by actual class.

    Args:
        classes: the actual class of each example, (N,).
        predictions: the predicted class of each example, (N,).
        labels: the names of the classes.

    Raises:
        ShapeError: the two have different lengths.
    """
    if len(classes) != len(predictions):
        raise ShapeError(f"each of {len(classes)} classes needs a prediction, got {len(predictions)}")
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (np.asarray(classes, np.int64), np.asarray(predictions, np.int64)), 1)
    return Confusion(counts, tuple(labels))
