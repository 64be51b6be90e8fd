"""Exact match: for tasks with one right answer."""

from __future__ import annotations

from collections.abc import Sequence

from attent.errors import ArgumentError


def exact_match(translations: Sequence[str], references: Sequence[str]) -> float:
    """The share of translations that equal their reference, character by character.

    Returns:
        Per cent, 0 to 100.

    Raises:
        ArgumentError: there are none, or not as many of one as of the other.
    """
    if not references or len(translations) != len(references):
        counts = f"{len(translations)} and {len(references)}"
        raise ArgumentError(f"exact match needs as many translations as references, at least one, got {counts}")
    return 100 * sum(map(str.__eq__, translations, references)) / len(references)
