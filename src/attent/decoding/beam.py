"""Beam search: which continuations survive, and when no better can come.

The first is exact down to ties, so that a search's result does not depend on what is searched beside it: of two
continuations with the same log-probability the one of the better hypothesis comes first, then the lower token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attent.data.tokenizer import BOS, EOS, PAD
from attent.decoding.hypothesis import Hypothesis, length_penalty
from attent.ops import native

# Tokens whose highest is found before any order is: on a CPU the highest of many takes a tenth of the time of saying which it
# is, and a fifteenth of the time of the highest few.
BLOCK = 32


def likeliest(so_far: Tensor, told: Tensor, who: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """The likeliest continuations of each sentence's K hypotheses, best first.

    As many as 2K, since K of them may end with EOS and K must go on; 1 if K is 1, for then EOS ends the sentence.

    Args:
        so_far: the hypotheses' log-probabilities, (S, K).
        told: those of each token to come, (S, K, V).
        who: plays no part.
        step: plays no part.

    Returns:
        The log-probabilities, (S, C), and where each is in (K, V), laid end to end, (S, C).
    """
    width, size = told.shape[1:]
    if countable(told):
        return _ranked(so_far, told)
    # rounding keeps the order, so that a block's highest sum is the sum with its highest
    highest = so_far[..., None] + _highest(told)  # (S, K, N)
    blocks = highest.shape[2]
    if width == 1:
        found = highest[:, 0].argmax(-1, keepdim=True)  # the first of equals
        inside = _inside(told, found)[:, 0]  # (S, BLOCK)
        place = inside.argmax(-1, keepdim=True)
        return so_far + inside.gather(1, place), found * BLOCK + place
    count = min(2 * width + 1, width * size)
    # no other block holds a higher one
    found = highest.flatten(1).topk(min(count, width * blocks)).indices  # (S, n)
    scores, places = (so_far.gather(1, found // blocks)[..., None] + _inside(told, found)).flatten(1).topk(count)
    found = found.gather(1, places // BLOCK)
    places = found // blocks * size + (found % blocks * BLOCK + places % BLOCK).clamp(max=size - 1)
    tied = (scores[:, 1:] == scores[:, :-1]) & ~scores[:, 1:].isneginf()
    scores, places = scores[:, : 2 * width], places[:, : 2 * width]
    if len(rows := tied.any(1).nonzero()[:, 0]):
        every = (so_far[rows, :, None] + told[rows]).flatten(1)
        places = places.index_copy(0, rows, _first_of_equals(every, places.shape[1]))
    return scores, places


def countable(told: Tensor) -> bool:
    """Whether the extension finds the likeliest."""
    return told.device.type == "cpu" and told.dtype == torch.float32 and told.is_contiguous() and native.library() is not None


def likeliest_of_logits(so_far: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """`likeliest` of logits (S, K, V), which are written over, where neither PAD nor BOS may be said; they must be `countable`."""
    return _ranked(so_far, logits, logits=True)


def _ranked(so_far: Tensor, told: Tensor, *, logits: bool = False) -> tuple[Tensor, Tensor]:
    """The same by the extension; logits are normalised as they are read."""
    number, width, size = told.shape
    count = min(2 * width, width * size) if width > 1 else 1
    scores, places = told.new_empty(number, count), so_far.new_empty(number, count, dtype=torch.int64)
    given = (so_far.contiguous(), told, scores, places)
    native.run("attent_likeliest", given, number, width, size, count, logits, PAD, BOS, EOS)
    return scores, places


def _highest(told: Tensor) -> Tensor:
    """The highest of each block of tokens, (S, K, V) → (S, K, N)."""
    blocks, rest = divmod(told.shape[-1], BLOCK)
    highest = told[..., : blocks * BLOCK].unflatten(-1, (blocks, BLOCK)).amax(-1)
    return torch.cat((highest, told[..., blocks * BLOCK :].amax(-1, keepdim=True)), -1) if rest else highest


def _inside(told: Tensor, found: Tensor) -> Tensor:
    """Some blocks (S, n) of the N of each of K rows, laid end to end: (S, n, BLOCK), −∞ behind the last token."""
    size = told.shape[-1]
    blocks = -(-size // BLOCK)
    row, block = found // blocks, found % blocks
    tokens = block[..., None] * BLOCK + torch.arange(BLOCK, device=told.device)  # (S, n, BLOCK)
    places = row[..., None] * size + tokens.clamp(max=size - 1)
    inside = told.flatten(1).gather(1, places.flatten(1)).view_as(places)
    return inside if size % BLOCK == 0 else inside.masked_fill(tokens >= size, -torch.inf)


def _first_of_equals(total: Tensor, count: int) -> Tensor:
    """Where the highest are in each row (S, N), of equals the first; `topk` leaves open which of them it takes."""
    bits = total.view(torch.int32).long()
    # whole numbers in the order of the floats whose bits they are
    order = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return ((order << 32) - torch.arange(total.shape[1], device=total.device)).topk(count).indices


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
