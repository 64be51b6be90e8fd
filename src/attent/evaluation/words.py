"""From pieces to words: which word each piece lies in, and the weights between words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# What tokenizers of parts of words put before or behind a piece to say where words begin or end.
MARKS = ("▁", "##", "@@", "</w>")

Words = Sequence[int | None]


def word_indices(text: str, pieces: Sequence[str]) -> list[int | None]:
    """Which whitespace-separated word of a text, from 0, each of its pieces lies in; None for spaces and for nothing.

    Args:
        text: the text.
        pieces: what it was cut into, in order: characters, parts of words or words, with or without marks and spaces.
    """
    found: list[int | None] = []
    place = 0
    for piece in pieces:
        core = piece.strip()
        start = text.find(core, place)
        if start < 0:
            for mark in MARKS:
                core = core.removeprefix(mark).removesuffix(mark)
            start = text.find(core, place)
        if not core:
            found.append(None)
        elif start < 0:
            # an unknown piece or a byte, which does not say where it stood: it goes with what comes next, of the same word or of the next
            rest = text[place:]
            begins = place + len(rest) - len(rest.lstrip())
            found.append(max(len(text[: begins + 1].split()) - 1, 0))
        else:
            place = start + len(core)
            found.append(len(text[: start + 1].split()) - 1)
    return found


def merge_to_words(weights: Tensor, source: Words, target: Words) -> Tensor:
    """The weights between words: summed over the pieces of the word that is looked at, averaged over those of the word that looks.

        A(w, u) = 1/|w| Σ_{t ∈ w} Σ_{i ∈ u} α(t, i)

    So a row that sums to 1 still does, but for what lies on pieces that are in no word. Source: Clark et al. (2019), §4.1, arXiv
    1906.04341.

    Args:
        weights: (Tq, Tk), row t of which is about target piece t.
        source: each source piece's word; None for those that count for nothing.
        target: each target piece's word.

    Returns:
        (target words, source words); a row of zeros for a word without pieces.
    """
    rows, columns = _averages(target), _averages(source)
    sums = (columns > 0).double()
    return rows @ weights.double() @ sums.T


def _averages(pieces: Words) -> Tensor:
    """For each word the share of each piece in it, (words, pieces)."""
    inside = [(word, piece) for piece, word in enumerate(pieces) if word is not None]
    shares = torch.zeros(max((word for word, _ in inside), default=-1) + 1, len(pieces), dtype=torch.float64)
    if inside:
        shares[tuple(torch.tensor(inside).T)] = 1
    return shares / shares.sum(1, keepdim=True).clamp(min=1)
