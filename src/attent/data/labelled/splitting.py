"""Some examples of each class kept for a test or for validation."""

from __future__ import annotations

import numpy as np

from attent.errors import DataError


def stratified(classes: np.ndarray, share: float, seed: int, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Keep a share of the examples, as near as can be the same share of each class, drawn by the seed.

    Every class keeps one example at least to be trained on.

    Args:
        classes: the class of each example, (N,), from 0.
        share: how much is kept, 0 to 1; of N examples round(share · N).
        seed: the same classes, share and seed give the same split.
        most: how many are kept at most.

    Returns:
        The rows that are left and those that are kept, both in ascending order.

    Raises:
        DataError: a share is asked for, and there are too few examples to keep one.
    """
    wanted = min(round(share * len(classes)), len(classes) if most is None else most)
    if share and not wanted:
        raise DataError(f"a share of {share:g} of {len(classes)} examples is not one example")
    counts = np.bincount(classes)
    exact = counts * (wanted / max(len(classes), 1))
    kept = np.minimum(exact.astype(int), np.maximum(counts - 1, 0))
    # what rounding down has left over goes to the classes that lost most by it
    for number in np.argsort(kept - exact, kind="stable"):
        if kept.sum() < wanted and kept[number] < counts[number] - 1:
            kept[number] += 1
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(classes))
    chosen = np.concatenate([np.zeros(0, int), *(order[classes[order] == number][:count] for number, count in enumerate(kept))])
    held = np.zeros(len(classes), bool)
    held[chosen] = True
    return np.flatnonzero(~held), np.flatnonzero(held)
