"""Constraints on a translation: forbidden tokens get a log-probability of −∞.

`is_repetitive` detects translations that loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attent.text.batches import Sequences
from attent.text.tokenizer import BOS, EOS, PAD

# Tokens per n-gram, minimum n-grams of a text that is checked, and mean occurrences of each n-gram in a loop.
ORDER, MIN_NGRAMS, TIMES = 4, 12, 3


@dataclass(frozen=True)
class Constraints:
    """Constraints on each row of a batch; immutable, with rows selected together with the decoder's state.

    PAD and BOS are always forbidden. At its limit, a row can only produce EOS. A row in which every token would repeat
    an n-gram can produce EOS. A forced prefix overrides all other constraints; its first tokens may be a prompt, whose
    log-probability is not counted.

    Args:
        prefixes: the forced beginning of each translation, padded with PAD, (B, P).
        limits: maximum number of tokens of each translation, (B,).
        min_limit: the smallest of the limits.
        minimum_length: minimum number of tokens before EOS.
        no_repeat_ngram: forbids repeating an n-gram of this length; 0 forbids nothing.
        prompt_length: number of leading prefix tokens that are given rather than predicted, such as a language token.
    """

    prefixes: Tensor
    limits: Tensor
    min_limit: int
    minimum_length: int = 0
    no_repeat_ngram: int = 0
    prompt_length: int = 0

    @classmethod
    def of(
        cls,
        limits: Tensor,
        prefixes: Sequence[Sequence[int]] | None = None,
        *,
        minimum_length: int = 0,
        no_repeat_ngram: int = 0,
        prompt_length: int = 0,
    ) -> Constraints:
        """Build the constraints of a batch.

        Args:
            limits: maximum number of tokens of each translation, (B,); raised to the length of a longer prefix.
            prefixes: the forced beginning of each translation, without BOS; empty by default.
            minimum_length: see `Constraints`.
            no_repeat_ngram: see `Constraints`.
            prompt_length: see `Constraints`.
        """
        padded = limits.new_full((len(limits), 0), PAD)
        if prefixes is not None and any(prefixes):
            sequences = Sequences(prefixes)
            padded = torch.from_numpy(sequences.pad(torch.arange(len(limits)).numpy())).to(limits.device)
            limits = torch.maximum(limits, torch.from_numpy(sequences.lengths).to(limits.device))
        return cls(
            padded, limits, int(limits.min()) if len(limits) else 0, minimum_length, no_repeat_ngram, prompt_length
        )

    def select(self, rows: Tensor) -> Constraints:
        """Return the constraints of the given rows, in this order; rows may repeat."""
        return replace(self, prefixes=self.prefixes[rows], limits=self.limits[rows])

    def is_unconstrained(self, step: int) -> bool:
        """Return whether every token except PAD and BOS is allowed after `step` tokens, in every row."""
        can_repeat, is_forced = 0 < self.no_repeat_ngram <= step, step < self.prefixes.shape[1]
        return not (can_repeat or is_forced or step < self.minimum_length or step >= self.min_limit)

    def apply_(self, log_probs: Tensor, tokens: Tensor) -> Tensor:
        """Apply the constraints in place; copying the log-probabilities of a large vocabulary would take megabytes."""
        step, originals = tokens.shape[1], log_probs[:, EOS].clone()
        forced = self.prefixes[:, step] if step < self.prefixes.shape[1] else None
        values = None if forced is None or step < self.prompt_length else log_probs.gather(1, forced[:, None])[:, 0]
        log_probs[:, PAD] = log_probs[:, BOS] = -torch.inf
        if step < self.minimum_length:
            log_probs[:, EOS] = -torch.inf
        if 0 < self.no_repeat_ngram <= step:
            _forbid_ngram_repeats_(log_probs, tokens, self.no_repeat_ngram)
            log_probs[:, EOS] = torch.where(torch.isneginf(log_probs).all(-1), originals, log_probs[:, EOS])
        if step >= self.min_limit:
            _force_(log_probs, self.limits <= step, torch.full_like(self.limits, EOS), originals)
        if forced is not None:
            _force_(log_probs, forced != PAD, forced, torch.zeros_like(originals) if values is None else values)
        return log_probs

    def apply(self, log_probs: Tensor, tokens: Tensor) -> Tensor:
        """Return the log-probabilities (B, V) of the token after `tokens` (B, t), −∞ for forbidden tokens."""
        return self.apply_(log_probs.clone(), tokens)


def _force_(log_probs: Tensor, is_forced: Tensor, tokens: Tensor, values: Tensor) -> None:
    """Allow only the given tokens (B,) in the forced rows (B,), with the given log-probabilities (B,); in place."""
    indices = tokens[:, None]
    chosen = torch.where(is_forced[:, None], values[:, None], log_probs.gather(1, indices))
    log_probs.masked_fill_(is_forced[:, None], -torch.inf).scatter_(1, indices, chosen)


def _forbid_ngram_repeats_(log_probs: Tensor, tokens: Tensor, ngram_size: int) -> None:
    """Forbid the tokens that would repeat an n-gram of this length, in place."""
    ngrams = tokens.unfold(1, ngram_size, 1)  # (B, t - n + 1, n)
    beginning = tokens[:, tokens.shape[1] - ngram_size + 1 :]  # (B, n - 1)
    rows, positions = (ngrams[..., :-1] == beginning[:, None]).all(-1).nonzero(as_tuple=True)
    log_probs[rows, ngrams[rows, positions, -1]] = -torch.inf


def is_repetitive(tokens: Sequence[int]) -> bool:
    """Return whether a text mostly repeats a few n-grams, like the output of a looping decoder."""
    ngrams = [tuple(tokens[begin : begin + ORDER]) for begin in range(len(tokens) - ORDER + 1)]
    return len(ngrams) >= MIN_NGRAMS and TIMES * len(set(ngrams)) <= len(ngrams)
