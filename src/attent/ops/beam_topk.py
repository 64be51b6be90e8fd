"""The best continuations of a beam's hypotheses, with a fixed order for ties.

Of two continuations with the same log-probability, the one of the better hypothesis comes first, then the one with the
lower token id. A search's result therefore does not depend on the other sentences in the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attent.ops import native
from attent.ops.eligibility import can_run_native

# Tokens per block whose maximum is computed before sorting: on a CPU the maximum of many numbers takes a tenth of the
# time of argmax, and a fifteenth of that of topk.
BLOCK = 32


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


def reference(scores: Tensor, log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `beam_topk` in plain PyTorch."""
    width, size = log_probs.shape[1:]
    # Rounding is monotonic, so the maximum of a block's sums equals the sum with the block's maximum.
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
    """Call the library; if `special` tokens (two forbidden ones and EOS) are given, the numbers are logits."""
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
    """Return the numbers in the selected blocks (S, n) as (S, n, BLOCK), with −∞ beyond the last token.

    Each of the K rows has N blocks.
    """
    size = log_probs.shape[-1]
    blocks = -(-size // BLOCK)
    tokens = (block % blocks)[..., None] * BLOCK + torch.arange(BLOCK, device=log_probs.device)  # (S, n, BLOCK)
    indices = (block // blocks)[..., None] * size + tokens.clamp(max=size - 1)
    numbers = log_probs.flatten(1).gather(1, indices.flatten(1)).view_as(indices)
    return numbers if size % BLOCK == 0 else numbers.masked_fill(tokens >= size, -torch.inf)


def _stable_topk(totals: Tensor, count: int) -> Tensor:
    """Return the indices of the greatest numbers in each row (S, N); of equal numbers, the first comes first.

    `topk` does not define an order for ties.
    """
    bits = totals.view(torch.int32).long()
    # Reinterpret the floats' bits as integers with the same order.
    order = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return ((order << 32) - torch.arange(totals.shape[1], device=totals.device)).topk(count).indices
