"""Beam search: which continuations survive, and when no better can come.

The first is exact down to ties, so that a search's result does not depend on what is searched beside it: of two
continuations with the same log-probability the one of the better hypothesis comes first, then the lower token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attent.decoding.hypothesis import Hypothesis, length_penalty


def likeliest(so_far: Tensor, told: Tensor, who: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """The likeliest continuations of each sentence's K hypotheses, best first.

    As many as 2K, since K of them may end with STOP and K must go on; 1 if K is 1, for then STOP ends the sentence.

    Args:
        so_far: the hypotheses' log-probabilities, (S, K).
        told: those of each token to come, (S, K, V).
        who: plays no part.
        step: plays no part.

    Returns:
        The log-probabilities, (S, C), and where each is in (K, V), laid end to end, (S, C).
    """
    total = (so_far[..., None] + told).flatten(1)  # (S, K·V)
    width = so_far.shape[1]
    if width == 1:
        places = total.argmax(-1, keepdim=True)  # the first of equals
        return total.gather(1, places), places
    scores, places = total.topk(min(2 * width + 1, total.shape[1]))
    tied = (scores[:, 1:] == scores[:, :-1]) & ~scores[:, 1:].isneginf()
    scores, places = scores[:, : 2 * width], places[:, : 2 * width]
    if len(rows := tied.any(1).nonzero()[:, 0]):
        places = places.index_copy(0, rows, _first_of_equals(total[rows], 2 * width))
    return scores, places


def _first_of_equals(total: Tensor, count: int) -> Tensor:
    """Where the highest are in each row (S, N), of equals the first; `topk` leaves open which of them it takes."""
    bits = total.view(torch.int32).long()
    # whole numbers in the order of the floats whose bits they are
    order = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return ((order << 32) - torch.arange(total.shape[1], device=total.device)).topk(count).indices


def settled(finished: Sequence[Hypothesis], running: float, limit: int, *, width: int, wanted: int, alpha: float) -> bool:
    """Whether a sentence's best hypotheses are known.

    A running hypothesis only loses log-probability, and is divided at most by the penalty of the longest translation: it
    never scores above log P / lp(limit + 1). Nothing is given up as long as that could be among those wanted.

    Args:
        finished: what has ended with STOP.
        running: the highest log-probability of what has not.
        limit: the most tokens that the translation may have, STOP not counted.
        width: K; with 1 the first STOP ends the sentence.
        wanted: how many are asked for.
        alpha: of the length penalty.
    """
    if running == -torch.inf:
        return True
    if len(finished) < wanted:
        return False
    worst = sorted((hypothesis.score for hypothesis in finished), reverse=True)[wanted - 1]
    return width == 1 or worst >= running / length_penalty(limit + 1, alpha)
