"""Greedy search: the most probable token, step by step."""

from __future__ import annotations

from typing import Any

import torch

from attent.axes import Lengths, Tokens
from attent.data.batches import ROWS, round_up
from attent.data.tokenizer import PAD, START, STOP
from attent.models.encoder_decoder import EncoderDecoder


@torch.inference_mode()
def greedy(model: EncoderDecoder[Any], source: Tokens, lengths: Lengths, limits: Lengths) -> list[list[int]]:
    """Translate a batch, taking the most probable token at every step until STOP.

    Finished sentences leave the batch. Its rows stay a multiple of 8 throughout (repeating a row where sentences are
    too few), so that a translation does not depend on what is translated beside it.

    Args:
        model: in evaluation mode.
        source: right-padded sources, (B, Tk).
        lengths: how many of each source's tokens are real, (B,).
        limits: the most tokens that each translation may have, (B,).

    Returns:
        Each source's translation, without START and STOP.
    """
    written: list[list[int]] = [[] for _ in range(len(source))]
    longest = limits.tolist()
    starting = [row for row in range(len(source)) if longest[row] > 0]
    if not starting:
        return written
    chosen = torch.tensor(_filled(starting), device=source.device)
    state = model.start(model.encode(source[chosen], lengths[chosen]))
    tokens = torch.full((len(chosen),), START, device=source.device)
    never = torch.tensor([PAD, START], device=source.device)
    # The source that each place of the batch still writes for, None where it is finished.
    places: list[int | None] = [*starting, *[None] * (len(chosen) - len(starting))]
    while running := [place for place, row in enumerate(places) if row is not None]:
        if round_up(len(running), ROWS) < len(places):
            kept = torch.tensor(_filled(running), device=source.device)
            state, tokens = state.select(kept), tokens[kept]
            places = [*(places[place] for place in running), *[None] * (len(kept) - len(running))]
        features, state = model.step(state, tokens)
        tokens = model.output(features).index_fill(-1, never, -torch.inf).argmax(-1)  # (B,)
        for place, token in enumerate(tokens.tolist()):
            row = places[place]
            if row is None:
                continue
            if token != STOP:
                written[row].append(token)
            if token == STOP or len(written[row]) == longest[row]:
                places[place] = None
    return written


def _filled(rows: list[int]) -> list[int]:
    """The rows, and the last of them again until they are a multiple of 8."""
    return rows + rows[-1:] * (round_up(len(rows), ROWS) - len(rows))
