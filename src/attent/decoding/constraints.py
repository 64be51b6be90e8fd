"""What a translation may not say: log-probabilities that become −∞."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attent.data.batches import Sequences
from attent.data.tokenizer import BOS, EOS, PAD


@dataclass(frozen=True)
class Constraints:
    """What holds for each row of a batch; a value, selected from together with the decoder's state.

    PAD and BOS are never said. At its limit a row can only say EOS. Where n-grams would leave a row nothing to say, it
    may say EOS. A forced prefix comes before every other constraint.

    Args:
        prefixes: how each translation begins, PAD behind its end, (B, P).
        limits: the most tokens that each may have, (B,).
        nearest: the least of the limits.
        minimum_length: tokens before EOS may come.
        no_repeat_ngram: no run of so many tokens comes twice; 0 forbids nothing.
    """

    prefixes: Tensor
    limits: Tensor
    min_limit: int
    minimum_length: int = 0
    no_repeat_ngram: int = 0

    @classmethod
    def of(
        cls, limits: Tensor, prefixes: Sequence[Sequence[int]] | None = None, *, minimum_length: int = 0, no_repeat_ngram: int = 0
    ) -> Constraints:
        """The constraints of a batch.

        Args:
            limits: the most tokens of each translation, (B,); a longer prefix raises it.
            prefixes: how each begins, without BOS; with nothing unless given.
            minimum_length: as above.
            no_repeat_ngram: as above.
        """
        if prefixes is None or not any(prefixes):
            begun = limits.new_full((len(limits), 0), PAD)
        else:
            sequences = Sequences(prefixes)
            begun = torch.from_numpy(sequences.pad(torch.arange(len(limits)).numpy())).to(limits.device)
            limits = torch.maximum(limits, torch.from_numpy(sequences.lengths).to(limits.device))
        return cls(begun, limits, int(limits.min()) if len(limits) else 0, minimum_length, no_repeat_ngram)

    def select(self, rows: Tensor) -> Constraints:
        """The constraints of these rows, in this order; a row may be named twice."""
        return replace(self, prefixes=self.prefixes[rows], limits=self.limits[rows])

    def is_unconstrained(self, step: int) -> bool:
        """Whether so many tokens further anything but PAD and BOS may come."""
        repeats, begun = 0 < self.no_repeat_ngram <= step, step < self.prefixes.shape[1]
        return not (repeats or begun or step < self.minimum_length or step >= self.min_limit)

    def apply_(self, told: Tensor, written: Tensor) -> Tensor:
        """`apply`, which may write over what it is given."""
        return _speakable_(told) if self.is_unconstrained(written.shape[1]) else self.apply(told, written)

    def apply(self, told: Tensor, written: Tensor) -> Tensor:
        """The log-probabilities (B, V) of what comes after the tokens written (B, t), −∞ for what may not."""
        step = written.shape[1]
        free = told
        told = _speakable_(told.clone())
        if step < self.minimum_length:
            told[:, EOS] = -torch.inf
        if 0 < self.no_repeat_ngram <= step:
            told = _without_repeats(told, written, self.no_repeat_ngram)
            mute = torch.isneginf(told).all(-1)
            told[:, EOS] = torch.where(mute, free[:, EOS], told[:, EOS])
        if step >= self.min_limit:
            told = _only(told, free, self.limits <= step, torch.full_like(self.limits, EOS))
        if step < self.prefixes.shape[1]:
            forced = self.prefixes[:, step]
            told = _only(told, free, forced != PAD, forced)
        return told


def _speakable_(told: Tensor) -> Tensor:
    """Neither PAD nor BOS, in place."""
    told[:, PAD] = told[:, BOS] = -torch.inf
    return told


def _only(told: Tensor, free: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
    """In these rows (B,) only the tokens (B,), with the log-probabilities that they had when all were free."""
    alone = torch.full_like(free, -torch.inf).scatter(1, tokens[:, None], free.gather(1, tokens[:, None]))
    return torch.where(rows[:, None], alone, told)


def _without_repeats(told: Tensor, written: Tensor, length: int) -> Tensor:
    """No token that would end an n-gram for the second time."""
    ngrams = written.unfold(1, length, 1)  # (B, t - n + 1, n)
    beginning = written[:, written.shape[1] - length + 1 :]  # (B, n - 1)
    again = (ngrams[..., :-1] == beginning[:, None]).all(-1)  # (B, t - n + 1)
    rows, places = again.nonzero(as_tuple=True)
    told[rows, ngrams[rows, places, -1]] = -torch.inf
    return told
