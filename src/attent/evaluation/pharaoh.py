"""Which word came from which, read from attention, written as the alignment tools write it: `0-0 1-2`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attent.attention.watch import watch
from attent.data.batches import KEYS, BatchSize, Sequences, cut
from attent.data.tokenizer import START
from attent.errors import UnknownNameError
from attent.models.encoder_decoder import EncoderDecoder

BATCH = BatchSize(pairs=64)
# What tokenizers of parts of words put before or behind a piece to say where words begin or end.
MARKS = ("▁", "##", "@@", "</w>")


@torch.no_grad()
def looked_at(
    model: EncoderDecoder[Any], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], *, name: str | None = None
) -> list[Tensor]:
    """How each target token's step looks at the source's tokens, the mean over heads, while the model is given the target.

    Args:
        model: in evaluation mode.
        sources: tokens.
        targets: tokens, without START and STOP.
        name: which attention; the last `cross_attention` unless given.

    Returns:
        For each pair (Tq, Tk), a row for each target token; Tk is 0 for an empty source.

    Raises:
        UnknownNameError: no attention bears that name.
    """
    device = next(model.parameters()).device
    read, given = Sequences(sources), Sequences([[START, *target] for target in targets])
    maps = [torch.zeros(len(target), len(source)) for source, target in zip(sources, targets, strict=True)]
    order = (read.lengths * (given.lengths - 1)).nonzero()[0]
    order = order[read.lengths[order].argsort(kind="stable")]
    for rows in cut(order, read.lengths, BATCH):
        lengths = torch.from_numpy(read.lengths[rows]).to(device)
        with watch(model) as seen:
            memory = model.encode(torch.from_numpy(read.padded(rows, KEYS)).to(device), lengths)
            model.decode(memory, torch.from_numpy(given.padded(rows)).to(device))
        chosen = name or next((path for path in reversed(list(seen)) if path.endswith("cross_attention")), "cross_attention")
        if chosen not in seen:
            raise UnknownNameError("attention", chosen, seen)
        weights = seen[chosen].dense().float().mean(1).cpu()  # (B, Tq, Tk)
        for row, single in zip(rows, weights, strict=True):
            maps[row] = single[: len(targets[row]), : len(sources[row])]
    return maps


def words(text: str, pieces: Sequence[str]) -> list[int | None]:
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
            # an unknown piece, which says nothing about where it stood: it goes with the next word
            found.append(min(len(text[:place].split()), max(len(text.split()) - 1, 0)))
        else:
            place = start + len(core)
            found.append(len(text[: start + 1].split()) - 1)
    return found


def links(weights: Tensor, source: Sequence[int | None], target: Sequence[int | None]) -> list[tuple[int, int]]:
    """For each target word the source word that its pieces look at most, all their weights together.

        a(w) = argmax_u  Σ_{t ∈ w} Σ_{i ∈ u} α(t, i)

    Args:
        weights: (Tq, Tk), row t of which emits target piece t.
        source: each source piece's word; None for those that count for nothing.
        target: each target piece's word.

    Returns:
        (source word, target word), from 0, in the order of the target; words that nothing is looked at for have none.
    """
    by_word: dict[int, dict[int, float]] = {}
    for row, word in zip(weights.tolist(), target, strict=True):
        if word is None:
            continue
        sums = by_word.setdefault(word, {})
        for weight, other in zip(row, source, strict=True):
            if other is not None:
                sums[other] = sums.get(other, 0.0) + weight
    return [(max(sums, key=sums.__getitem__), word) for word, sums in sorted(by_word.items()) if any(sums.values())]


def pharaoh(found: Sequence[tuple[int, int]]) -> str:
    """Links as `source-target`, from 0, in the order of the source."""
    return " ".join(f"{source}-{target}" for source, target in sorted(found))
