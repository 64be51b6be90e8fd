"""Sampling: each token drawn at random, with the model's probabilities or sharper ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Sampler:
    """Draws each sentence's next token; it takes the place of `likeliest`.

    Args:
        uniforms: the randomness, from 0 up to but not including 1, one number a sentence and step, (S, T) float64.
        temperature, top_k, top_p: as in `SearchSettings`.
    """

    uniforms: Tensor
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __call__(self, so_far: Tensor, told: Tensor, who: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """The token drawn for each sentence.

        Args:
            so_far: the log-probabilities of what is written, (S, 1).
            told: those of each token to come, (S, 1, V).
            who: which row of the uniforms belongs to each sentence, (S,).
            step: which column.

        Returns:
            The log-probabilities with the token's own, and the token, both (S, 1).
        """
        told = told[:, 0]
        shares = sampling_probs(told, self.temperature, self.top_k, self.top_p)
        sums = shares.double().cumsum(-1)
        heights = self.uniforms[who, step, None] * sums[:, -1:]
        # to the right: a token whose share is nothing adds no height and is never met
        tokens = torch.searchsorted(sums, heights, right=True).clamp(max=told.shape[1] - 1)
        return so_far + told.gather(1, tokens), tokens


def sampling_probs(told: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0) -> Tensor:
    """The probabilities that tokens are drawn with.

    Args:
        told: log-probabilities, (S, V), −∞ for what may not come.
        temperature: divides them; below 1 sharpens, above 1 flattens.
        top_k: only so many most probable tokens, and those as probable as the last of them (None: all).
        top_p: of these only the fewest most probable that together have this probability, the last of them included.

    Returns:
        (S, V), each row's sum 1.
    """
    told = told / temperature
    if top_k is not None and top_k < told.shape[1]:
        told = told.masked_fill(told < told.topk(top_k).values[:, -1:], -torch.inf)
    shares = told.softmax(-1)
    if top_p < 1:
        descending, order = shares.sort(dim=-1, descending=True, stable=True)
        before = descending.double().cumsum(-1) - descending
        kept = torch.zeros_like(shares).scatter(1, order, descending.masked_fill(before >= top_p, 0))
        shares = kept / kept.sum(-1, keepdim=True)
    return shares


def uniforms(seed: int, sources: Sequence[Sequence[int]], copies: int, steps: int) -> Tensor:
    """Random numbers for some draws of each source, (B · copies, steps), a source's draws beside each other.

    A source's numbers are a function of the seed and of its tokens alone, so neither the order nor the batch matters.
    """
    rows = [np.random.default_rng([seed, copy, *source]).random(steps) for source in sources for copy in range(copies)]
    return torch.from_numpy(np.stack(rows)) if rows else torch.zeros(0, steps, dtype=torch.float64)
