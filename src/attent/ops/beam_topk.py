"""The best continuations of a beam's hypotheses, exact down to ties.

A search's result therefore does not depend on the sentences beside it in the batch: of two continuations with the same
log-probability the one of the better hypothesis comes first, then the lower token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attent.ops import native
from attent.ops.eligibility import can_run_native

# Tokens whose maximum is taken before any order: on a CPU the maximum of many numbers takes a tenth of the time of
# argmax, and a fifteenth of that of topk.
BLOCK = 32


def beam_topk(scores: Tensor, log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best continuations of each sentence's K hypotheses, best first.

    There are C = 2K of them, since K may end with EOS and K must continue; C = 1 if K is 1, for then EOS ends the
    sentence.

    Args:
        scores: the hypotheses' log-probabilities, (S, K).
        log_probs: those of every next token, (S, K, V).

    Returns:
        The continuations' log-probabilities, (S, C), and their indices into the flattened (K, V), (S, C).
    """
    return _native(scores, log_probs) if _can_run_native(log_probs) else reference(scores, log_probs)


def beam_topk_of_logits(scores: Tensor, logits: Tensor, forbidden: tuple[int, int], eos: int) -> tuple[Tensor, Tensor]:
    """Return `beam_topk` of the logits' log-softmax; the library normalizes them as it reads them.

    Logits are overwritten.

    Args:
        scores: the hypotheses' log-probabilities, (S, K).
        logits: those of every next token, (S, K, V).
        forbidden: two tokens that no hypothesis continues with.
        eos: the token that a hypothesis with NaN among its logits ends with, in the library.
    """
    if _can_run_native(logits):
        return _native(scores, logits, (*forbidden, eos))
    log_probs = logits.log_softmax(-1)
    log_probs[..., list(forbidden)] = -torch.inf
    return reference(scores, log_probs)


def log_softmax(logits: Tensor) -> Tensor:
    """Return the log-softmax of logits (R, V) that `beam_topk_of_logits` takes, bit for bit. Logits are overwritten."""
    if not _can_run_native(logits):
        return logits.log_softmax(-1)
    native.run("attent_log_softmax", (logits,), *logits.shape)
    return logits


def reference(scores: Tensor, log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `beam_topk` in plain PyTorch."""
    width, size = log_probs.shape[1:]
    # Rounding keeps the order, so that the maximum of a block's sums is the sum with its maximum.
    maxima = scores[..., None] + _block_maxima(log_probs)  # (S, K, N)
    blocks = maxima.shape[2]
    if width == 1:
        block = maxima[:, 0].argmax(-1, keepdim=True)  # the first of equals
        tokens = _tokens_of(log_probs, block)[:, 0]  # (S, BLOCK)
        index = tokens.argmax(-1, keepdim=True)
        return scores + tokens.gather(1, index), block * BLOCK + index
    count = min(2 * width + 1, width * size)
    # No other block holds a greater number.
    block = maxima.flatten(1).topk(min(count, width * blocks)).indices  # (S, n)
    totals, indices = (
        (scores.gather(1, block // blocks)[..., None] + _tokens_of(log_probs, block)).flatten(1).topk(count)
    )
    block = block.gather(1, indices // BLOCK)
    indices = block // blocks * size + (block % blocks * BLOCK + indices % BLOCK).clamp(max=size - 1)
    has_tie = (totals[:, 1:] == totals[:, :-1]) & ~totals[:, 1:].isneginf()
    totals, indices = totals[:, : 2 * width], indices[:, : 2 * width]
    if len(rows := has_tie.any(1).nonzero()[:, 0]):
        all_totals = (scores[rows, :, None] + log_probs[rows]).flatten(1)
        indices = indices.index_copy(0, rows, _stable_topk(all_totals, indices.shape[1]))
    return totals, indices


def _can_run_native(log_probs: Tensor) -> bool:
    return can_run_native(log_probs) and log_probs.is_contiguous()


def _native(scores: Tensor, log_probs: Tensor, special: tuple[int, int, int] | None = None) -> tuple[Tensor, Tensor]:
    """Call the library; `special` tokens (two forbidden ones and EOS) say that the numbers are logits."""
    number, width, size = log_probs.shape
    count = min(2 * width, width * size) if width > 1 else 1
    totals, indices = log_probs.new_empty(number, count), scores.new_empty(number, count, dtype=torch.int64)
    numbers = (number, width, size, count, special is not None, *(special or (0, 0, 0)))
    native.run("attent_beam_topk", (scores.contiguous(), log_probs, totals, indices), *numbers)
    return totals, indices


def _block_maxima(log_probs: Tensor) -> Tensor:
    """Return the maximum of each block of tokens, (S, K, V) → (S, K, N)."""
    blocks, rest = divmod(log_probs.shape[-1], BLOCK)
    maxima = log_probs[..., : blocks * BLOCK].unflatten(-1, (blocks, BLOCK)).amax(-1)
    return torch.cat((maxima, log_probs[..., blocks * BLOCK :].amax(-1, keepdim=True)), -1) if rest else maxima


def _tokens_of(log_probs: Tensor, block: Tensor) -> Tensor:
    """Return the numbers in blocks (S, n), out of N for each of K rows: (S, n, BLOCK), −∞ beyond the last token."""
    size = log_probs.shape[-1]
    blocks = -(-size // BLOCK)
    tokens = (block % blocks)[..., None] * BLOCK + torch.arange(BLOCK, device=log_probs.device)  # (S, n, BLOCK)
    indices = (block // blocks)[..., None] * size + tokens.clamp(max=size - 1)
    numbers = log_probs.flatten(1).gather(1, indices.flatten(1)).view_as(indices)
    return numbers if size % BLOCK == 0 else numbers.masked_fill(tokens >= size, -torch.inf)


def _stable_topk(totals: Tensor, count: int) -> Tensor:
    """Return the indices of the greatest numbers in each row (S, N), of equals the first.

    `topk` leaves open which it takes.
    """
    bits = totals.view(torch.int32).long()
    # Integers in the order of the floats whose bits they are.
    order = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return ((order << 32) - torch.arange(totals.shape[1], device=totals.device)).topk(count).indices
