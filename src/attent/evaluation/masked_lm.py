"""How well blanks are guessed, beside what counts of words alone would guess, all on the very same blanks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from attent.data.tokenizer import SPECIALS
from attent.decoding.fill_mask import FillMask
from attent.evaluation.ngrams import Trigrams

# Blanks looked at side by side.
TOGETHER = 256
YARDSTICKS = "unigram", "trigram, left", "trigram, both sides"


@dataclass(frozen=True)
class MaskedLMScore:
    """How well one way guesses.

    Args:
        accuracy: the share of blanks whose likeliest word is right, in per cent.
        perplexity: e to the mean cross entropy of the right words.
    """

    accuracy: float
    perplexity: float


@dataclass(frozen=True)
class MaskedLMReport:
    """The blanks that were guessed.

    Args:
        lines: the lines that they are in.
        blanks: how many there are.
        unknown: words left out, as the model does not know them and they cannot be right.
        long: lines left out, as the model cannot read them.
        ways: the model and its yardsticks by name.
    """

    lines: int
    blanks: int
    unknown: int
    long: int
    scores: dict[str, MaskedLMScore]


class ScoreSum:
    """Sums up guesses."""

    def __init__(self) -> None:
        self.right, self.nats, self.number = 0, 0.0, 0

    def add(self, logs: np.ndarray, told: np.ndarray) -> None:
        """Take some blanks into account.

        Args:
            logs: log-probabilities of every word up to a summand for each blank, (N, V).
            told: the right words, (N,).
        """
        most = logs.max(-1, keepdims=True)
        sums = np.log(np.exp(logs - most).sum(-1)) + most[:, 0]
        self.nats += float((sums - logs[np.arange(len(told)), told]).sum())
        self.right += int((logs.argmax(-1) == told).sum())
        self.number += len(told)

    def result(self) -> MaskedLMScore:
        """What came of it."""
        return MaskedLMScore(100 * self.right / self.number, math.exp(self.nats / self.number))


def evaluate_masked_lm(filler: FillMask, lines: Sequence[str], counted: Trigrams | None = None) -> MaskedLMReport | None:
    """Every known word of some lines in turn is the blank of its line, and guessed from all the others.

    Whoever guesses has to choose among the words that the model knows, and gives each a probability, which sum to 1.

    Args:
        filler: the model.
        lines: what it was not trained on.
        counted: what is counted in its training text, with its tokenizer's ids; no yardsticks without.

    Returns:
        None where there is no word to guess.
    """
    encoded = [filler.tokenizer.encode(line) for line in lines]
    longest = filler.longest or math.inf
    kept = [line for line in encoded if 0 < len(line) <= longest]
    known = [(line, place) for line in sorted(kept, key=len) for place, token in enumerate(line) if token >= SPECIALS]
    if not known:
        return None
    tallies = {name: ScoreSum() for name in ("model", *(() if counted is None else YARDSTICKS))}
    for some in _batches(known):
        told = np.array([line[place] - SPECIALS for line, place in some])
        tallies["model"].add(_by_model(filler, some), told)
        if counted is not None:
            for name, logs in _by_counts(counted, some).items():
                tallies[name].add(logs, told)
    words = sum(map(len, kept))
    long = sum(len(line) > longest for line in encoded)
    return MaskedLMReport(len(kept), len(known), words - len(known), long, {name: tally.result() for name, tally in tallies.items()})


def _batches(known: list[tuple[list[int], int]]) -> Iterator[list[tuple[list[int], int]]]:
    rest = iter(known)
    while some := list(islice(rest, TOGETHER)):
        yield some


def _by_model(filler: FillMask, some: Sequence[tuple[list[int], int]]) -> np.ndarray:
    mask = filler.tokenizer.size
    lines = [[*line[:place], mask, *line[place + 1 :]] for line, place in some]
    with torch.inference_mode():
        return filler.logits(lines, range(len(some)), [place for _, place in some]).double().cpu().numpy()


def _by_counts(counted: Trigrams, some: Sequence[tuple[list[int], int]]) -> dict[str, np.ndarray]:
    """Of words that the tokenizer knows, but training does not have, one is as likely as if it had been seen once."""
    unigrams = np.log(np.tile(counted.unigrams[SPECIALS:] + 1, (len(some), 1)))
    left, both = (
        np.log(np.stack([by(line, place)[SPECIALS:] for line, place in some])) for by in (counted.left_context, counted.both_contexts)
    )
    return dict(zip(YARDSTICKS, (unigrams, left, both), strict=True))
