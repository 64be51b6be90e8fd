"""Repetition: a decoder that runs in a loop."""

from __future__ import annotations

from collections.abc import Sequence

# Tokens of an n-gram, how many n-grams a text needs to be judged, and how often each comes on average in a loop.
ORDER, MIN_NGRAMS, TIMES = 4, 12, 3


def is_repetitive(tokens: Sequence[int]) -> bool:
    """Return whether a text consists of few n-grams that come again and again, as that of a decoder in a loop does."""
    ngrams = [tuple(tokens[begin : begin + ORDER]) for begin in range(len(tokens) - ORDER + 1)]
    return len(ngrams) >= MIN_NGRAMS and TIMES * len(set(ngrams)) <= len(ngrams)
