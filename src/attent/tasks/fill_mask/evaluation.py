"""Evaluation of a masked language model, compared with n-gram counts on the same masks, and of its heads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from attent.alignment.ablation import ACCURACY, HeadJudge, Metric
from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.text.ngrams import Trigrams
from attent.text.tokenizer import SPECIALS

# Masks of a batch.
BATCH = 256
BASELINES = "unigram", "trigram, left", "trigram, both sides"


@dataclass(frozen=True)
class MaskedLMScore:
    """The score of one model.

    Args:
        accuracy: the share of masks whose most probable word is right, in per cent.
        perplexity: e to the mean cross entropy of the right words.
    """

    accuracy: float
    perplexity: float


@dataclass(frozen=True)
class MaskedLMReport:
    """The scores of a model and of its baselines.

    Args:
        lines: number of lines.
        blanks: number of masks.
        unknown: words left out because the vocabulary lacks them.
        long: lines left out because the model cannot read them.
        scores: of the model and of the baselines, by name.
    """

    lines: int
    blanks: int
    unknown: int
    long: int
    scores: dict[str, MaskedLMScore]


class ScoreSum:
    """Sums up the scores of batches."""

    def __init__(self) -> None:
        self.correct, self.nats, self.count = 0, 0.0, 0

    def add(self, logits: np.ndarray, labels: np.ndarray) -> None:
        """Add a batch.

        Args:
            logits: of every word for each mask, (N, V).
            labels: the right words, (N,).
        """
        is_correct, nats = _judged(logits, labels)
        self.nats += float(nats.sum())
        self.correct += int(is_correct.sum())
        self.count += len(labels)

    def result(self) -> MaskedLMScore:
        """Return the score of all batches."""
        return MaskedLMScore(100 * self.correct / self.count, math.exp(self.nats / self.count))


def evaluate_masked_lm(
    filler: FillMask, lines: Sequence[str], trigrams: Trigrams | None = None
) -> MaskedLMReport | None:
    """Mask every known word of some lines, one at a time, and predict it from the rest of its line.

    All models choose among the words of the same vocabulary, and their probabilities sum to 1 over it.

    Args:
        filler: the model.
        lines: text that it was not trained on.
        trigrams: counts of its training text by its tokenizer's ids; without them there are no baselines.

    Returns:
        None if there is no word to predict.
    """
    encoded = [filler.tokenizer.encode(line) for line in lines]
    longest = filler.longest or math.inf
    readable = [line for line in encoded if 0 < len(line) <= longest]
    sums = {name: ScoreSum() for name in ("model", *(() if trigrams is None else BASELINES))}
    for batch in _batches(filler, readable):
        sums["model"].add(batch.logits, batch.labels)
        for name, logits in (_baseline_logits(trigrams, batch.masks) if trigrams else {}).items():
            sums[name].add(logits, batch.labels)
    blanks = sums["model"].count
    if not blanks:
        return None
    unknown = sum(map(len, readable)) - blanks
    long = sum(len(line) > longest for line in encoded)
    return MaskedLMReport(len(readable), blanks, unknown, long, {name: score.result() for name, score in sums.items()})


def known_words(tokens: Sequence[int]) -> list[int]:
    """Return the indices of the tokens of a line that are words of the vocabulary."""
    return [index for index, token in enumerate(tokens) if token >= SPECIALS]


def line_sums(filler: FillMask, lines: Sequence[list[int]]) -> np.ndarray:
    """Mask every known word of encoded lines as `evaluate_masked_lm` does, and return sums of each line, (N, 3).

    Args:
        filler: the model.
        lines: none longer than it can read.

    Returns:
        The number of words that are guessed, the cross entropy of the right words in nats, and the number of words.
    """
    sums = np.zeros((len(lines), 3))
    for batch in _batches(filler, lines):
        judged = _judged(batch.logits, batch.labels)
        np.add.at(sums, batch.rows, np.stack((*judged, np.ones(len(batch.rows))), 1))
    return sums


class _Batch(NamedTuple):
    """Some masks and the model's logits for them.

    Args:
        rows: the index of each mask's line.
        masks: each mask's line and its index there.
        labels: the right words, (N,).
        logits: of every word for each mask, (N, V).
    """

    rows: list[int]
    masks: list[tuple[list[int], int]]
    labels: np.ndarray
    logits: np.ndarray


def _batches(filler: FillMask, lines: Sequence[list[int]]) -> Iterator[_Batch]:
    """Mask every known word of the lines, one at a time, in order of length."""
    masked = [
        (row, index)
        for row in sorted(range(len(lines)), key=lambda row: len(lines[row]))
        for index in known_words(lines[row])
    ]
    for begin in range(0, len(masked), BATCH):
        rows = [row for row, _ in masked[begin : begin + BATCH]]
        masks = [(lines[row], index) for row, index in masked[begin : begin + BATCH]]
        yield _Batch(
            rows, masks, np.array([line[index] - SPECIALS for line, index in masks]), _model_logits(filler, masks)
        )


def _judged(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for logits (N, V) whether the largest is the label's, (N,), and the label's loss in nats, (N,)."""
    maxima = logits.max(-1, keepdims=True)
    log_sums = np.log(np.exp(logits - maxima).sum(-1)) + maxima[:, 0]
    return logits.argmax(-1) == labels, log_sums - logits[np.arange(len(labels)), labels]


def _model_logits(filler: FillMask, masks: Sequence[tuple[list[int], int]]) -> np.ndarray:
    lines = [[*line[:index], filler.tokenizer.size, *line[index + 1 :]] for line, index in masks]
    with torch.inference_mode():
        return filler.logits(lines, range(len(masks)), [index for _, index in masks]).double().cpu().numpy()


def _baseline_logits(trigrams: Trigrams, masks: Sequence[tuple[list[int], int]]) -> dict[str, np.ndarray]:
    """Return the baselines' logits; a word that never occurs in training counts as if it had occurred once."""
    unigrams = np.log(np.tile(trigrams.unigrams[SPECIALS:] + 1, (len(masks), 1)))
    contexts = (
        np.log(np.stack([probs(line, index)[SPECIALS:] for line, index in masks]))
        for probs in (trigrams.left_context, trigrams.both_contexts)
    )
    return dict(zip(BASELINES, (unigrams, *contexts), strict=True))


def masked_lm_lines(report: MaskedLMReport) -> list[str]:
    """Return the scores of blanks for a person."""
    width = max(map(len, report.scores))
    scores = [
        f"{name:{width}}  top-1 {score.accuracy:6.2f} %  perplexity {score.perplexity:8.2f}"
        for name, score in report.scores.items()
    ]
    left_out = [(report.unknown, "words that the model does not know"), (report.long, "lines that it cannot read")]
    size = f"{report.blanks:,} blanks, each alone in one of {report.lines:,} lines"
    return [*scores, "; ".join([size, *(f"{number:,} {kind} left out" for number, kind in left_out if number)])]


class BlankJudge(HeadJudge):
    """Judges a masked language model by its guesses of every known word of lines, masked one at a time.

    Args:
        fill_mask: whose model is judged.
        lines: of text, each with a known word, which the model can read.
        metric: ACCURACY, PERPLEXITY or LOSS.
    """

    def __init__(self, fill_mask: FillMask, lines: Sequence[str], metric: Metric = ACCURACY) -> None:
        super().__init__(fill_mask.model, metric)
        self.fill_mask = fill_mask
        self._tokens = [fill_mask.tokenizer.encode(line) for line in lines]

    def __len__(self) -> int:
        return len(self._tokens)

    def statistics(self) -> np.ndarray:
        return line_sums(self.fill_mask, self._tokens)[:, [0 if self.metric is ACCURACY else 1, 2]]

    @torch.no_grad()
    def maps(self, example: int) -> Mapping[str, AttentionMap]:
        """Run the model over one line whose middle known word is masked."""
        tokens, indices = self._tokens[example], known_words(self._tokens[example])
        index = indices[len(indices) // 2]
        with watch(self.model) as maps:
            self.fill_mask.logits(
                [[*tokens[:index], self.fill_mask.tokenizer.size, *tokens[index + 1 :]]], [0], [index]
            )
        return dict(maps.items())
