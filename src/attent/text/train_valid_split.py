"""Splits into training and validation: at random or by class, without a text in both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from attent.errors import DataError
from attent.text.disk_texts import DiskTexts, Row
from attent.text.readers import LabelledText
from attent.text.report import ReadReport

VALIDATION_SHARE = 0.05
MAX_VALIDATION = 1_000
# Reasons for which a report drops a row of training.
IN_VALIDATION, TEXT_IN_VALIDATION = "also in validation", "the text is also in validation"


def split(
    texts: DiskTexts[Row], seed: int, report: ReadReport, row_name: str = "pair"
) -> tuple[DiskTexts[Row], DiskTexts[Row]]:
    """Split validation off: 5 % of the rows, at least one and at most 1,000, drawn by the seed.

    Args:
        texts: the rows to split.
        seed: decides the split.
        report: records the rows that training loses because validation has them too.
        row_name: of a row in messages.

    Returns:
        The rows to train on and those to validate on, both in their order.

    Raises:
        DataError: there are fewer than two rows.
    """
    if len(texts) < 2:
        raise DataError(f"{report.name}: at least 2 {row_name}s are needed to train and to validate, got {len(texts)}")
    count = min(max(round(VALIDATION_SHARE * len(texts)), 1), MAX_VALIDATION)
    is_validation = np.zeros(len(texts), bool)
    is_validation[np.random.default_rng(seed).permutation(len(texts))[:count]] = True
    validation = texts.select(np.flatnonzero(is_validation))
    return drop_shared(texts.select(np.flatnonzero(~is_validation)), validation, report, row_name), validation


def drop_shared(
    texts: DiskTexts[Row], validation: DiskTexts[Row], report: ReadReport, row_name: str = "pair"
) -> DiskTexts[Row]:
    """Drop the rows of training that validation has too, all texts of a row being equal.

    Args:
        texts: the rows to train on.
        validation: the rows to validate on; held in memory.
        report: records dropped rows.
        row_name: of a row in messages.

    Raises:
        DataError: no row is left.
    """
    held_out = set(validation.fields())
    is_kept = np.ones(len(texts), bool)
    for row, fields in enumerate(texts.fields()):
        if fields in held_out:
            is_kept[row] = False
            report.drop(IN_VALIDATION, texts.line_number(row))
    if not is_kept.any():
        raise DataError(f"no {row_name} is left to train on; {report.one_line()}")
    return texts if is_kept.all() else texts.select(np.flatnonzero(is_kept))


def drop_shared_texts(
    examples: Sequence[tuple[int, LabelledText]], held_out: Iterable[LabelledText], report: ReadReport
) -> list[tuple[int, LabelledText]]:
    """Drop the labelled texts of training that are held out too, whatever their labels.

    Args:
        examples: the texts to train on, with the numbers of their lines.
        held_out: the texts to validate and test on.
        report: records dropped texts.

    Raises:
        DataError: no text is left.
    """
    texts = {example.text for example in held_out}
    for number, example in examples:
        if example.text in texts:
            report.drop(TEXT_IN_VALIDATION, number)
    result = [(number, example) for number, example in examples if example.text not in texts]
    if not result:
        raise DataError(f"no text is left to train on; {report.one_line()}")
    return result


def split_by_class(
    classes: np.ndarray, share: float, seed: int, limit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out a share of the examples, as nearly as possible the same share of each class, drawn by the seed.

    Each class keeps at least one example to train on.

    Args:
        classes: the class of each example, (N,), from 0.
        share: to hold out, 0 to 1; of N examples round(share · N).
        seed: decides the split.
        limit: the most examples to hold out.

    Returns:
        The rows to train on and the held-out rows, both in ascending order.

    Raises:
        DataError: the share is above 0, and there are too few examples to hold one out.
    """
    total = min(round(share * len(classes)), len(classes) if limit is None else limit)
    if share and not total:
        raise DataError(f"a share of {share:g} of {len(classes)} examples is not one example")
    counts = np.bincount(classes)
    exact = counts * (total / max(len(classes), 1))
    held_out = np.minimum(exact.astype(int), np.maximum(counts - 1, 0))
    # largest remainder: the classes that rounding down cost most get the examples that are left
    for number in np.argsort(held_out - exact, kind="stable"):
        if held_out.sum() < total and held_out[number] < counts[number] - 1:
            held_out[number] += 1
    order = np.random.default_rng(seed).permutation(len(classes))
    rows = np.concatenate(
        [np.zeros(0, int), *(order[classes[order] == number][:count] for number, count in enumerate(held_out))]
    )
    is_held_out = np.zeros(len(classes), bool)
    is_held_out[rows] = True
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)
