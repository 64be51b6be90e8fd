"""From weights between pieces to links between words, for a batch of pairs at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from attent.text.text import Link

Words = Sequence[int | None]


def merge_to_words(weights: Tensor, sources: Sequence[Words], targets: Sequence[Words]) -> Tensor:
    """Return the weights between words of several pairs.

    Summed over the pieces of the source word, averaged over those of the target word.

        A(w, u) = 1/|w| Σ_{t ∈ w} Σ_{i ∈ u} α(t, i)

    A row that sums to 1 still does, except for weight on pieces outside words. Source: Clark et al. (2019), §4.1, arXiv
    1906.04341.

    Args:
        weights: (N, Tq, Tk); row t is about target piece t. Rows and columns beyond those of a pair are ignored, but
            must be finite.
        sources: of each pair, the word index of each source piece; None for pieces to leave out.
        targets: of each pair, the word index of each target piece, likewise.

    Returns:
        (N, target words, source words), padded with zeros; a row of zeros for a word without pieces.
    """
    rows, columns = _memberships(targets, weights.shape[1]), _memberships(sources, weights.shape[2])
    rows /= rows.sum(2, keepdim=True).clamp(min=1)
    return rows @ weights.double() @ columns.transpose(1, 2)


def _memberships(words: Sequence[Words], pieces: int) -> Tensor:
    """Return 1 where a piece belongs to a word and 0 elsewhere, (N, words, pieces)."""
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    indices = np.fromiter((-1 if word is None else word for row in words for word in row), np.int64, int(lengths.sum()))
    pairs = np.repeat(np.arange(len(words)), lengths)
    positions = np.arange(len(indices)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    is_inside = indices >= 0
    memberships = torch.zeros(len(words), int(indices.max(initial=-1)) + 1, pieces, dtype=torch.float64)
    memberships.numpy()[pairs[is_inside], indices[is_inside], positions[is_inside]] = 1
    return memberships


def extract_links(weights: Tensor, threshold: float | None = None) -> list[list[Link]]:
    """Link each target word to the source word of the largest weight, or to all whose weight is above a threshold.

        a(t) = argmax_i A(t, i),  or  {(i, t) : A(t, i) > θ}

    Source of the first: Luong et al. (2015), §5.4, arXiv 1508.04025; of equal weights the first one counts.

    Args:
        weights: (N, target words, source words) of several pairs, padded with zeros.
        threshold: θ, at least 0; the largest weight alone by default.

    Returns:
        Of each pair (source word, target word), from 0, in the order of the target; a row of zeros has no link.
    """
    if not weights.numel():
        return [[] for _ in weights]
    if threshold is not None:
        pairs, targets, sources = (weights > threshold).nonzero(as_tuple=True)
    else:
        maxima, indices = weights.max(2)
        pairs, targets = (maxima > 0).nonzero(as_tuple=True)
        sources = indices[pairs, targets]
    links = list(zip(sources.tolist(), targets.tolist(), strict=True))
    ends = torch.bincount(pairs, minlength=len(weights)).cumsum(0).tolist()
    return [links[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
