"""The best continuations of a beam's hypotheses, with a fixed order for ties.

Of two continuations with the same log-probability, the one of the better hypothesis comes first, then the one with the
lower token id. A search's result therefore does not depend on the other sentences in the batch.
"""

import math

import torch
from torch import Tensor

from attent.ops import native
from attent.ops.eligibility import can_run_native


def beam_topk(scores: Tensor, log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best continuations of each sentence's K hypotheses, best first.

    There are C = 2K of them, since up to K may end with EOS and K must continue; C = 1 if K is 1, because EOS then ends
    the sentence.

    Args:
        scores: the hypotheses' log-probabilities, (S, K).
        log_probs: the log-probabilities of every next token, (S, K, V).

    Returns:
        The continuations' log-probabilities, (S, C), and their indices into the flattened (K, V), (S, C).
    """
    return _native(scores, log_probs) if _can_run_native(log_probs) else reference(scores, log_probs)


def beam_topk_of_logits(scores: Tensor, logits: Tensor, forbidden: tuple[int, int], eos: int) -> tuple[Tensor, Tensor]:
    """Return `beam_topk` of the logits' log-softmax, which the library computes while it reads them.

    The logits are overwritten.

    Args:
        scores: the hypotheses' log-probabilities, (S, K).
        logits: the logits of every next token, (S, K, V).
        forbidden: two tokens that never continue a hypothesis.
        eos: the end token; in the library it ends a hypothesis whose logits contain NaN.
    """
    if _can_run_native(logits):
        return _native(scores, logits, (*forbidden, eos))
    log_probs = logits.log_softmax(-1)
    log_probs[..., list(forbidden)] = -torch.inf
    return reference(scores, log_probs)


def log_softmax(logits: Tensor) -> Tensor:
    """Return the log-softmax of logits (R, V), bit for bit as in `beam_topk_of_logits`; the logits are overwritten."""
    if not _can_run_native(logits):
        return logits.log_softmax(-1)
    native.run("attent_log_softmax", (logits,), *logits.shape)
    return logits


def log_mean_softmax(logits: Tensor) -> Tensor:
    """Return the logarithm of the mean of the softmax of M models' logits, (M, …, V) → (…, V).

    Of one model, these are its logits. They are overwritten.
    """
    if len(logits) == 1:
        return logits[0]
    if not _can_run_native(logits):
        return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))
    native.run("attent_log_mean_softmax", (logits,), len(logits), logits[0, ..., 0].numel(), logits.shape[-1])
    return logits[0]


def reference(scores: Tensor, log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `beam_topk` in plain PyTorch."""
    width, size = log_probs.shape[1:]
    totals = (scores[..., None] + log_probs).flatten(1)
    count = min(2 * width, width * size) if width > 1 else 1
    largest = totals.topk(min(count + 1, width * size))
    values, indices = largest.values, largest.indices[:, :count]
    has_tie = ((values[:, 1:] == values[:, :-1]) & ~values[:, 1:].isneginf()).any(1)
    if len(rows := has_tie.nonzero()[:, 0]):
        # `topk` defines no order for ties: bits of floats as integers of the same order, then the lowest index first
        bits = totals[rows].view(torch.int32).long()
        order = (torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits) << 32) - torch.arange(bits.shape[1], device=bits.device)
        indices = indices.index_copy(0, rows, order.topk(count).indices)
    return totals.gather(1, indices), indices


def _can_run_native(log_probs: Tensor) -> bool:
    return can_run_native(log_probs) and log_probs.is_contiguous()


def _native(scores: Tensor, log_probs: Tensor, special: tuple[int, int, int] | None = None) -> tuple[Tensor, Tensor]:
    """Call the library; if `special` tokens (two forbidden ones and EOS) are given, the numbers are logits."""
    number, width, size = log_probs.shape
    count = min(2 * width, width * size) if width > 1 else 1
    totals, indices = log_probs.new_empty(number, count), scores.new_empty(number, count, dtype=torch.int64)
    numbers = (number, width, size, count, special is not None, *(special or (0, 0, 0)))
    native.run("attent_beam_topk", (scores.contiguous(), log_probs, totals, indices), *numbers)
    return totals, indices
