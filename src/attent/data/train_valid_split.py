"""Which pairs train and which validate, so that no pair does both."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from attent.data.disk_pairs import StoredPairs
from attent.data.readers import SHARED, ReadReport
from attent.data.text import Pair
from attent.errors import DataError

SHARE = 0.05
MOST = 1_000


def split(pairs: StoredPairs, seed: int, report: ReadReport, one: str = "pair") -> tuple[StoredPairs, StoredPairs]:
    """Split validation off: 5 % of the pairs, at least one and at most 1,000, drawn by the seed.

    Args:
        pairs: all of them.
        seed: the same pairs and seed give the same split.
        report: takes up the pairs that validation has as well, which training loses.
        one: what messages call a pair.

    Returns:
        The pairs to train on, and those to validate on, both in the order in which they came.

    Raises:
        DataError: too few pairs are there to do both.
    """
    if len(pairs) < 2:
        raise DataError(f"{report.name}: at least 2 {one}s are needed to train and to validate, got {len(pairs)}")
    count = min(max(round(SHARE * len(pairs)), 1), MOST)
    chosen = np.zeros(len(pairs), bool)
    chosen[np.random.default_rng(seed).permutation(len(pairs))[:count]] = True
    validation = pairs.only(np.flatnonzero(chosen))
    return without(pairs.only(np.flatnonzero(~chosen)), validation, report, one), validation


def without(pairs: StoredPairs, validation: Iterable[Pair], report: ReadReport, one: str = "pair") -> StoredPairs:
    """The pairs without those that validation has as well, source and target both the same.

    Args:
        pairs: what is to be trained on.
        validation: what is to be validated on; held in memory.
        report: takes up the pairs left out.
        one: what messages call a pair.

    Raises:
        DataError: nothing is left.
    """
    seen = {(pair.source, pair.target) for pair in validation}
    keep = np.ones(len(pairs), bool)
    for row, pair in enumerate(pairs):
        if (pair.source, pair.target) in seen:
            keep[row] = False
            report.drop(SHARED, pairs.number(row))
    if not keep.any():
        raise DataError(f"no {one} is left to train on; {'; '.join(line.strip() for line in report.summary())}")
    return pairs if keep.all() else pairs.only(np.flatnonzero(keep))
