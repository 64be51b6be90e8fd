"""The search: step by step, whatever the model, whichever way the next tokens are chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attent.axes import Lengths, Tokens
from attent.data.batches import ROWS, round_up
from attent.data.tokenizer import START, STOP
from attent.decoding.beam import likeliest, settled
from attent.decoding.constraints import Constraints
from attent.decoding.hypothesis import Hypothesis, length_penalty
from attent.decoding.settings import GREEDY, SearchSettings
from attent.models.encoder_decoder import EncoderDecoder

Choice = Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]


@torch.inference_mode()
def search(
    model: EncoderDecoder[Any],
    source: Tokens,
    lengths: Lengths,
    constraints: Constraints,
    settings: SearchSettings = GREEDY,
    choose: Choice = likeliest,
) -> list[list[Hypothesis]]:
    """Translate a batch: every hypothesis is continued until STOP.

    Settled sentences leave the batch. Its rows stay a multiple of 8 throughout (repeating a row where hypotheses are too
    few), so that a translation does not depend on what is translated beside it.

    Args:
        model: in evaluation mode.
        source: right-padded sources, (B, Tk).
        lengths: how many of each source's tokens are real, (B,).
        constraints: of each source's translations.
        settings: the beam, and how many translations are wanted.
        choose: which continuations come next: `likeliest`, or `Draw` for samples.

    Returns:
        The n_best hypotheses of each source, the highest score first; fewer if there are no more.
    """
    copies = settings.n_best if settings.sample else 1
    wanted, width = settings.n_best // copies, settings.beam
    finished: list[list[Hypothesis]] = [[] for _ in range(len(source) * copies)]
    if not finished:
        return []
    limits = constraints.limits.repeat_interleave(copies).tolist()
    # Which sentence each place of the batch writes for, and whether it still does.
    who = torch.arange(len(finished), device=source.device)
    sentences, open_places = who.tolist(), who.tolist()
    every = _filled(torch.arange(len(source), device=source.device))
    rows = _filled(who.repeat_interleave(width) // copies)
    state = model.start(model.encode(source[every], lengths[every])).select(rows)
    constraints = constraints.select(rows)
    written = rows.new_empty(len(rows), 0)
    tokens = torch.full_like(rows, START)
    # All but one hypothesis of a sentence would be the same at first.
    so_far = torch.full((len(who), width), -torch.inf, device=source.device).index_fill(1, who.new_zeros(1), 0.0)
    while True:
        features, state = model.step(state, tokens)
        told = constraints.apply_(model.output(features).float().log_softmax(-1), written)  # (R, V)
        told = told[: len(who) * width].unflatten(0, (-1, width))  # (S, K, V)
        step = written.shape[1]
        scores, places = choose(so_far, told, who, step)  # (S, C)
        hypotheses = places // told.shape[-1] + width * torch.arange(len(who), device=who.device)[:, None]
        said = places % told.shape[-1]

        ends = said == STOP
        endings = ends[:, :width] & ~scores[:, :width].isneginf()
        still_open = set(open_places)
        ended = [(place, rank) for place, rank in endings.nonzero().tolist() if place in still_open]
        if ended:
            penalty = length_penalty(step + 1, settings.length_penalty)
            at, ranks = torch.tensor(ended, device=who.device).unbind(1)
            found = zip(written[hypotheses[at, ranks]].tolist(), scores[at, ranks].tolist(), strict=True)
            for (place, _), (tokens_said, total) in zip(ended, found, strict=True):
                finished[sentences[place]].append(Hypothesis(tuple(tokens_said), total, penalty))
        if width > 1:
            going = ends.byte().argsort(dim=1, stable=True)[:, :width]
            said, hypotheses, scores = said.gather(1, going), hypotheses.gather(1, going), scores.gather(1, going)
            ends = ends.gather(1, going)
        so_far = scores.masked_fill(ends, -torch.inf)
        running = so_far[:, 0].tolist()
        open_places = [
            place
            for place in open_places
            # what neither ended anything nor came to an end goes on
            if (not finished[sentences[place]] and running[place] > -torch.inf)
            or not settled(
                finished[sentences[place]],
                running[place],
                limits[sentences[place]],
                width=width,
                wanted=wanted,
                alpha=settings.length_penalty,
            )
        ]
        if not open_places:
            break
        if leaving := round_up(len(open_places) * width, ROWS) < len(tokens):
            kept = torch.tensor(open_places, device=who.device)
            who, so_far, said, hypotheses = who[kept], so_far[kept], said[kept], hypotheses[kept]
            sentences, open_places = who.tolist(), list(range(len(kept)))
        tokens = _filled(said.flatten())
        if leaving:
            rows = _filled(hypotheses.flatten())
            state, written, constraints = state.select(rows), written[rows], constraints.select(rows)
        elif width > 1:
            rows = _filled(hypotheses.flatten())
            # hypotheses move within their own sentence, whose source all its rows have
            state, written = state.reorder(rows), written[rows]
        written = torch.cat((written, tokens[:, None]), 1)
    return [_best(finished[first : first + copies], settings.n_best) for first in range(0, len(finished), copies)]


def _filled(rows: Tensor) -> Tensor:
    """The rows, and the last of them again until they are a multiple of 8."""
    lacking = -len(rows) % ROWS
    return torch.cat((rows, rows[-1:].expand(lacking))) if lacking else rows


def _best(finished: list[list[Hypothesis]], count: int) -> list[Hypothesis]:
    """So many hypotheses of one source, the highest score first."""
    return sorted((hypothesis for part in finished for hypothesis in part), key=lambda hypothesis: -hypothesis.score)[:count]
