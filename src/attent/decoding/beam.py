"""Beam search: which continuations survive, and when no better can come."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attent.decoding.hypothesis import Hypothesis, length_penalty
from attent.ops.beam_topk import beam_topk


def likeliest(so_far: Tensor, told: Tensor, who: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Return the best continuations of each sentence's K hypotheses (`ops.beam_topk`); `who` and `step` play no part."""
    return beam_topk(so_far, told)


def is_finished(finished: Sequence[Hypothesis], running: float, limit: int, *, width: int, wanted: int, alpha: float) -> bool:
    """Whether a sentence's best hypotheses are known.

    A running hypothesis only loses log-probability, and is divided at most by the penalty of the longest translation: it
    never scores above log P / lp(limit + 1). Nothing is given up as long as that could be among those wanted.

    Args:
        finished: what has ended with EOS.
        running: the highest log-probability of what has not.
        limit: the most tokens that the translation may have, EOS not counted.
        width: K; with 1 the first EOS ends the sentence.
        wanted: how many are asked for.
        alpha: of the length penalty.
    """
    if running == -torch.inf:
        return True
    if len(finished) < wanted:
        return False
    worst = sorted((hypothesis.score for hypothesis in finished), reverse=True)[wanted - 1]
    return width == 1 or worst >= running / length_penalty(limit + 1, alpha)
