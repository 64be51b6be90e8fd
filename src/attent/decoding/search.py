"""The search: step by step, whatever the model, whichever way the next tokens are chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attent.data.batches import ROW_MULTIPLE, round_up
from attent.data.tokenizer import BOS, EOS, PAD
from attent.decoding.beam import is_finished, likeliest
from attent.decoding.constraints import Constraints
from attent.decoding.hypothesis import Hypothesis, length_penalty
from attent.decoding.settings import GREEDY, SearchSettings
from attent.models.encoder_decoder import EncoderDecoder
from attent.ops.beam_topk import beam_topk_of_logits
from attent.types import Lengths, Tokens

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
    """Translate a batch: every hypothesis is continued until EOS.

    Settled sentences leave the batch. A translation does not depend on what is translated beside it: unless the model computes each
    row by itself, the batch's rows stay a multiple of 8 throughout (repeating a row where hypotheses are too few).

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
    multiple = 1 if model.rowwise else ROW_MULTIPLE
    # Which sentence each place of the batch writes for; all but one hypothesis of a sentence would be the same at first.
    who = np.arange(len(finished))
    so_far = np.full((len(who), width), -np.inf, np.float32)
    so_far[:, 0] = 0
    every = _filled(np.arange(len(source)), multiple).to(source.device)
    rows = _filled(who.repeat(width) // copies, multiple).to(source.device)
    state = model.start(model.encode(source[every], lengths[every])).select(rows)
    constraints = constraints.select(rows)
    written = rows.new_empty(len(rows), 0)
    tokens = torch.full_like(rows, BOS)
    while True:
        features, state = model.step(state, tokens)
        step = written.shape[1]
        # what is decided about so few numbers is decided on the CPU
        scores, hypotheses, said = _chosen(model.output(features), so_far, constraints, written, choose, who)
        ends = said == EOS
        endings = ends[:, :width] & (scores[:, :width] != -np.inf)
        if endings.any():
            penalty = length_penalty(step + 1, settings.length_penalty)
            ended = [
                (who[place], row, total)
                for place, row, total in zip(
                    endings.nonzero()[0].tolist(), hypotheses[:, :width][endings].tolist(), scores[:, :width][endings].tolist(), strict=True
                )
                if len(best := finished[who[place]]) < wanted or total / penalty > best[-1].score
            ]
            said_before = written[torch.tensor([row for _, row, _ in ended], device=written.device, dtype=torch.long)].tolist()
            for (sentence, _, total), before in zip(ended, said_before, strict=True):
                best = [*finished[sentence], Hypothesis(tuple(before), total, penalty)]
                finished[sentence] = sorted(best, key=lambda hypothesis: -hypothesis.score)[:wanted]
        if width > 1:
            going = ends.argsort(axis=1, kind="stable")[:, :width] + ends.shape[1] * np.arange(len(ends))[:, None]
            said, hypotheses, scores, ends = (found.take(going) for found in (said, hypotheses, scores, ends))
        so_far = np.where(ends, np.float32(-np.inf), scores)
        still = [
            place
            for place, (sentence, running) in enumerate(zip(who.tolist(), so_far[:, 0].tolist(), strict=True))
            # what neither ended anything nor came to an end goes on
            if (not finished[sentence] and running > -np.inf)
            or not is_finished(finished[sentence], running, limits[sentence], width=width, wanted=wanted, alpha=settings.length_penalty)
        ]
        if not still:
            break
        if leaving := round_up(len(still) * width, multiple) < len(tokens):
            who, so_far, said, hypotheses = who[still], so_far[still], said[still], hypotheses[still]
        elif len(still) < len(who):
            # those that stay to fill up the batch go on with nothing
            so_far[np.delete(np.arange(len(who)), still)] = -np.inf
        tokens = _filled(said.ravel(), multiple).to(source.device)
        moved = _filled(hypotheses.ravel(), multiple)
        if leaving:
            rows = moved.to(source.device)
            state, written, constraints = state.select(rows), written[rows], constraints.select(rows)
        elif width > 1 and not torch.equal(moved, torch.arange(len(moved))):
            rows = moved.to(source.device)
            # hypotheses move within their own sentence, whose source all its rows have
            state, written = state.reorder(rows), written[rows]
        written = torch.cat((written, tokens[:, None]), 1)
    return [_best(finished[first : first + copies], settings.n_best) for first in range(0, len(finished), copies)]


def _chosen(
    logits: Tensor, so_far: np.ndarray, constraints: Constraints, written: Tensor, choose: Choice, who: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The log-probabilities of each sentence's next hypotheses, the rows that they continue, and their new tokens, (S, C) each."""
    (number, width), step = so_far.shape, written.shape[1]
    logits, before = logits.float(), torch.from_numpy(so_far).to(logits.device)
    if choose is likeliest and constraints.is_unconstrained(step):
        scores, places = beam_topk_of_logits(before, logits[: number * width].unflatten(0, (-1, width)), (PAD, BOS), EOS)
    else:
        told = constraints.apply_(logits.log_softmax(-1), written)  # (R, V)
        told = told[: number * width].unflatten(0, (-1, width))  # (S, K, V)
        scores, places = choose(before, told, torch.from_numpy(who).to(logits.device), step)
    hypotheses, said = np.divmod(places.cpu().numpy(), logits.shape[-1])
    return scores.cpu().numpy(), hypotheses + width * np.arange(number)[:, None], said


def _filled(rows: np.ndarray, multiple: int) -> Tensor:
    """The rows, and the last of them again until they are a multiple of so many."""
    return torch.from_numpy(np.pad(rows, (0, lacking), "edge") if (lacking := -len(rows) % multiple) else rows)


def _best(finished: list[list[Hypothesis]], count: int) -> list[Hypothesis]:
    """So many hypotheses of one source, the highest score first."""
    return sorted((hypothesis for part in finished for hypothesis in part), key=lambda hypothesis: -hypothesis.score)[:count]
