"""Evaluation of a language model, compared with n-gram counts on the same tokens, and of its heads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attent.alignment.ablation import PERPLEXITY, HeadJudge, Metric
from attent.attention.maps.attention_map import AttentionMap
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.text.ngrams import Trigrams
from attent.text.tokenizer import BOS, EOS, UNK

MODEL, UNIGRAM, TRIGRAM = "model", "unigram", "trigram"


@dataclass(frozen=True)
class LanguageModelScore:
    """The score of one model.

    Args:
        nats: the mean of −log p of a token.
        bits: the same to base 2.
        bits_per_byte: of the text in UTF-8, line breaks included.
        perplexity: e to the nats.
    """

    nats: float
    bits: float
    bits_per_byte: float
    perplexity: float


@dataclass(frozen=True)
class LanguageModelReport:
    """The scores of a model and of its baselines.

    Args:
        lines: number of lines.
        tokens: number of tokens, the end of each line included.
        bytes: of the lines in UTF-8, a line break after each.
        unknown: tokens among these that stand for what the vocabulary lacks; bits per byte leave out what they were.
        long: lines left out because the model cannot read them.
        scores: of the model and of the baselines, by name.
    """

    lines: int
    tokens: int
    bytes: int
    unknown: int
    long: int
    scores: dict[str, LanguageModelScore]


def evaluate_language_model(
    generator: TextGenerator, lines: Sequence[str], trigrams: Trigrams | None = None
) -> LanguageModelReport | None:
    """Compute the probability of every token of some lines, given those before it, and of the end of each line.

    All models have the same tokens, and their probabilities sum to 1 over the vocabulary. Where lines are texts by
    themselves, a token is given those of its line; else the lines are running text, and it is given those of its
    window. The trigram sees two tokens, of its own line alone.

    Args:
        generator: the model.
        lines: text that it was not trained on.
        trigrams: counts of its training text by its tokenizer's ids; without them there are no baselines.

    Returns:
        None if there is no line that the model can read.
    """
    encoded = [generator.tokenizer.encode(line) for line in lines]
    # a line by itself is BOS and its tokens
    longest = (
        generator.model.longest if generator.stops_at_line_end and generator.model.longest is not None else math.inf
    )
    is_readable = [bool(line) and len(line) < longest for line in encoded]
    texts = [line for line, readable in zip(lines, is_readable, strict=True) if readable]
    tokens = [[*line, EOS] for line, readable in zip(encoded, is_readable, strict=True) if readable]
    if not tokens:
        return None
    count, size = sum(map(len, tokens)), sum(len(text.encode("utf-8", "surrogatepass")) + 1 for text in texts)
    sums: dict[str, float] = {MODEL: _model_nats(generator, tokens)} | (
        {} if trigrams is None else _baseline_nats(trigrams, tokens)
    )
    scores = {name: _score(nats, count, size) for name, nats in sums.items()}
    long = sum(len(line) >= longest for line in encoded)
    return LanguageModelReport(len(tokens), count, size, sum(line.count(UNK) for line in tokens), long, scores)


def _score(nats: float, tokens: int, size: int) -> LanguageModelScore:
    per_token = nats / tokens
    return LanguageModelScore(
        per_token, per_token / math.log(2), nats / math.log(2) / size, math.exp(min(per_token, 700.0))
    )


def _model_nats(generator: TextGenerator, lines: Sequence[Sequence[int]]) -> float:
    texts = lines if generator.stops_at_line_end else [[token for line in lines for token in line]]
    return -math.fsum(float(generator.log_probs(text).sum()) for text in texts)


def _baseline_nats(trigrams: Trigrams, lines: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return the nats of the baselines; a token that never occurs in training counts as if it had occurred once."""
    first, second, third = (
        np.concatenate([np.array([BOS, BOS, *line], np.int64)[begin : begin + len(line)] for line in lines])
        for begin in range(3)
    )
    unigrams = trigrams.unigrams + 1
    probs = {UNIGRAM: unigrams[third] / unigrams.sum(), TRIGRAM: trigrams.probability(first, second, third)}
    return {name: -float(np.log(values).sum()) for name, values in probs.items()}


def language_model_lines(report: LanguageModelReport) -> list[str]:
    """Return the scores of next tokens for a person."""
    width = max(map(len, report.scores))
    scores = [
        f"{name:{width}}  {score.nats:6.3f} nats and {score.bits:6.3f} bits per token  {score.bits_per_byte:6.3f} "
        f"bits per byte  perplexity {score.perplexity:8.2f}"
        for name, score in report.scores.items()
    ]
    left_out = f"; {report.long:,} lines that it cannot read left out" if report.long else ""
    unknown = f", {report.unknown:,} of them unknown to the model" if report.unknown else ""
    return [
        *scores,
        f"{report.tokens:,} tokens{unknown}, and {report.bytes:,} bytes, in {report.lines:,} lines{left_out}",
    ]


class NextTokenJudge(HeadJudge):
    """Judges a language model by its perplexity or its loss.

    Args:
        generator: whose model is judged.
        lines: of text, none of them empty, which the model can read.
        metric: PERPLEXITY or LOSS.
    """

    def __init__(self, generator: TextGenerator, lines: Sequence[str], metric: Metric = PERPLEXITY) -> None:
        super().__init__(generator.model, metric)
        self.generator = generator
        self._tokens = [generator.tokenizer.encode(line) for line in lines]

    def __len__(self) -> int:
        return len(self._tokens)

    def statistics(self) -> np.ndarray:
        texts = [[*tokens, EOS] for tokens in self._tokens]
        if self.generator.stops_at_line_end:
            sums = [float(self.generator.log_probs(text).sum()) for text in texts]
        else:
            # running text, which is read in windows
            log_probs = self.generator.log_probs([token for text in texts for token in text])
            sums = [math.fsum(part.tolist()) for part in log_probs.split([len(text) for text in texts])]
        return np.array([(-total, len(text)) for total, text in zip(sums, texts, strict=True)]).reshape(-1, 2)

    def maps(self, example: int) -> Mapping[str, AttentionMap]:
        longest = self.generator.model.longest
        tokens = self._tokens[example][: None if longest is None else longest - 1]
        return {name: labelled.weights for name, labelled in self.generator.map_of_tokens(tokens).items()}
