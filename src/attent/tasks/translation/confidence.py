"""Confidence: the probability that a translation is usable, and that each of its words is right.

The evidence is what the model computes anyway, under one forced decoding pass over the finished translation: the
probabilities of its tokens and the attention to the source (Fomicheva et al. 2020, arXiv 2005.10608), lengths,
repetition, and the distance of the encoder's states from those of the held-out sources (Ren et al. 2022, arXiv
2209.15558; here with a diagonal covariance). `calibrate` fits a logistic regression of it to held-out pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import torch

from attent.alignment.aligner import text_pieces, word_indices
from attent.alignment.forced_decoding import forced_passes
from attent.errors import ArgumentError, RunError
from attent.runs.folder import MODEL
from attent.search.constraints import is_repetitive
from attent.search.search import Translation
from attent.tasks.translation.alignment import token_texts
from attent.tasks.translation.calibration import (
    CONFIDENCE,
    SENTENCE,
    WORD,
    Calibration,
    Regression,
    area_under_curve,
    calibration_error,
)
from attent.tasks.translation.evaluation import sentence_chrf
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import EOS, UNK, prompt_of

# Decimals of a confidence: more would show the last bits of matrix products.
DECIMALS = 4
# Attention that a source token receives from all steps together, below which it counts as hardly attended to; and, in
# nats, the rounding error of float32, added to losses before their logarithm.
UNCOVERED, SMALLEST_LOSS = 0.2, 1e-6
# Adjacent source words that are warned of together, and the share of held-out translations with such a warning.
WINDOW, WARNED = 3, 0.01
# Fewest held-out translations to calibrate on, parts for cross-validation, and share of exact matches from which they
# are the label.
FEWEST, FOLDS, EXACT = 50, 5, 1 / 3
# The reason why there is no confidence.
NOT_CALIBRATED = (
    "a run calibrated with its current weights: attent calibrate RUN --source FILE --target FILE, on held-out pairs"
)


class Evidence(NamedTuple):
    """Evidence for and against a translation.

    Args:
        sentence: the features of the sentence, (F,).
        words: the words of the translation, separated by spaces.
        features: the features of each word, (words, G).
        coverage: attention that the tokens of each source word receive, mean over them, (source words,).
    """

    sentence: np.ndarray
    words: list[str]
    features: np.ndarray
    coverage: np.ndarray


@dataclass(frozen=True)
class Confidence:
    """The confidence in a translation.

    Args:
        confidence: the probability that the translation is usable, 0 to 1; usable as in `Calibration.label`.
        words: each word of the translation, as separated by spaces, with the probability that it is right.
        warnings: what is wrong with it, for people to read: loops, and source words that are not attended to.
    """

    confidence: float
    words: tuple[tuple[str, float], ...] = ()
    warnings: tuple[str, ...] = ()

    def problem(self, minimum: float | None) -> str | None:
        """Return the reason why the sentence should stay untranslated; None if the confidence is at least `minimum`."""
        is_low = minimum is not None and self.confidence < minimum
        return f"not translated: confidence {self.confidence:g} is below {minimum:g}" if is_low else None

    @classmethod
    def of(cls, translator: Translator, translations: Sequence[Translation]) -> list[Confidence | None]:
        """Return the confidence in translations; None for a source that is empty or was refused.

        A confidence does not depend on the other translations of the batch.

        Args:
            translator: the translator that wrote them, loaded from a run that `attent calibrate` has calibrated.
            translations: the translations, with their sources.

        Raises:
            ArgumentError: the translator is not calibrated, or its model has no attention to the source.
            RunError: the calibration was made for a model of another size.
        """
        calibration = calibration_of(translator)
        results: list[Confidence | None] = [
            Confidence(0.0, warnings=("is empty",)) if item.source.ids and item.source.refusal is None else None
            for item in translations
        ]
        mean, scale = np.array(calibration.mean), np.array(calibration.scale)
        for row, evidence in _evidence(translator, translations, mean, scale):
            values = calibration.word.probabilities(evidence.features).round(DECIMALS).tolist()
            results[row] = cls(
                round(float(calibration.sentence.probabilities(evidence.sentence)), DECIMALS),
                tuple(zip(evidence.words, values, strict=True)),
                tuple(_warnings(translations[row], evidence.coverage, calibration.coverage)),
            )
        return results


def calibration_of(translator: Translator) -> Calibration:
    """Return the calibration of a translator.

    Raises:
        ArgumentError: it has none.
    """
    if translator.calibration is None:
        raise ArgumentError(f"confidence needs {NOT_CALIBRATED}")
    return translator.calibration


def repeats_itself(translation: Translation) -> bool:
    """Return whether a translation loops, unlike its source."""
    return is_repetitive(translation.tokens) and not is_repetitive(translation.source.ids)


def calibrate(
    translator: Translator, sources: Sequence[str], references: Sequence[str]
) -> tuple[Calibration, list[str]]:
    """Fit the confidence of a translator to held-out pairs, which it translates.

    A translation is usable if it equals its reference, provided that at least a third of them do; otherwise if its
    chrF2 is at or above the median. A word is right if it occurs in the reference, as often as there.

    Args:
        translator: the translator.
        sources: sources that it was not trained on.
        references: their translations.

    Returns:
        The coefficients, fitted to all pairs, and lines with the figures of cross-validation, for people to read.

    Raises:
        ArgumentError: there are too few pairs, or all translations are usable, or none.
    """
    items = [n_best[0] for n_best in translator.search(sources)]
    sums = [(len(states), states.sum(0), (states**2).sum(0)) for *_, states in _traces(translator, items)]
    if len(sums) < FEWEST:
        raise ArgumentError(f"confidence needs at least {FEWEST} pairs that the run translates, got {len(sums)}")
    count, total, squares = (np.sum(part, 0) for part in zip(*sums, strict=True))
    mean = total / count
    scale = np.sqrt(np.maximum(squares / count - mean**2, 0)) + 1e-3
    by_row = dict(_evidence(translator, items, mean, scale))
    rows = sorted(by_row)
    evidence = [by_row[row] for row in rows]
    judged = [references[row] for row in rows]
    name, usable = _usable([items[row].text for row in rows], judged)
    right = [_right(item.words, reference) for item, reference in zip(evidence, judged, strict=True)]
    features, counts = np.array([item.sentence for item in evidence]), [len(item.words) for item in evidence]
    folds = np.arange(len(rows)) % FOLDS
    of_words = np.concatenate([item.features for item in evidence]), np.concatenate(right)
    sentence, sentence_line = _fit("sentences", SENTENCE, features, usable, folds)
    word, word_line = _fit("words", WORD, *of_words, folds.repeat(counts))
    lowest = [_window_means(item.coverage).min() for item in evidence]
    calibration = Calibration(
        weights=translator.config.digests.get(MODEL) if translator.config else None,
        label=name,
        pairs=len(rows),
        sentence=sentence,
        word=word,
        mean=mean.tolist(),
        scale=scale.tolist(),
        coverage=float(np.quantile(lowest, WARNED)),
    )
    return calibration, [f"usable: {name}", sentence_line, word_line]


def _fit(
    unit: str, names: tuple[str, ...], features: np.ndarray, labels: np.ndarray, folds: np.ndarray
) -> tuple[Regression, str]:
    """Return the regression, with or without novelty by cross-validation, and the figures of that."""
    if labels.all() or not labels.any():
        raise ArgumentError(
            f"confidence needs right and wrong translations, but all {unit} are {'right' if labels.any() else 'wrong'}"
        )
    # novelty helps where sources may be damaged, and is noise otherwise
    candidates = [features * np.array(["novelty" not in name for name in names]), features]
    values = [_cross_validated(names, inputs, labels, folds) for inputs in candidates]
    areas = [area_under_curve(of_inputs, labels) for of_inputs in values]
    best, plain = int(np.argmax(areas)), area_under_curve(-features[:, 0], labels)
    line = (
        f"{unit:9}  AUC {areas[best]:.3f}, of the mean log-probability alone {plain:.3f}; calibration error "
        f"{calibration_error(values[best], labels):.3f}  ({len(labels):,} of which {labels.sum():,} are right)"
    )
    return Regression.fit(names, candidates[best], labels), line


def _cross_validated(names: tuple[str, ...], features: np.ndarray, labels: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Return the probability of each example by a regression that is fitted to the other folds, (N,)."""
    values = np.zeros(len(labels))
    for fold in range(FOLDS):
        is_inside = folds == fold
        regression = Regression.fit(names, features[~is_inside], labels[~is_inside])
        values[is_inside] = regression.probabilities(features[is_inside])
    return values


def _usable(texts: Sequence[str], references: Sequence[str]) -> tuple[str, np.ndarray]:
    """Return the name of the label of sentences, and the label of each, (N,)."""
    is_exact = np.array(list(map(str.__eq__, texts, references)))
    if is_exact.mean() >= EXACT:
        return "equals the reference", is_exact
    scores = np.array([sentence_chrf(*pair) for pair in zip(texts, references, strict=True)])
    median = float(np.median(scores))
    return f"chrF2 of at least {median:.1f}, the median", scores >= median


def _right(words: Sequence[str], reference: str) -> np.ndarray:
    """Return whether each word occurs in the reference, as often as there, (words,)."""
    counts = Counter(reference.split())
    return np.array([words[:index].count(word) < counts[word] for index, word in enumerate(words)], bool)


@torch.no_grad()
def _traces(
    translator: Translator, translations: Sequence[Translation]
) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the index of each translation, its losses (T,), attention (T, Tk) and encoder states (Tk, E).

    Losses are in nats; there is a step for each token and for EOS, except for the tokens of a prompt. Translations
    without tokens are left out.
    """
    prompt = len(prompt_of(translator.target_tokenizer))
    sources = [() if item.source.refusal else item.source.ids for item in translations]
    targets = [item.tokens for item in translations]
    for batch in forced_passes(translator.model, sources, targets):
        logits, weights = translator.model.output(batch.features).float(), batch.mean_weights().double().numpy()
        totals, states = logits.logsumexp(-1), batch.memory.double().cpu().numpy()
        for index, row in enumerate(batch.rows.tolist()):
            tokens = torch.tensor([*targets[row][prompt:], EOS], device=logits.device)
            steps, keys = slice(prompt, prompt + len(tokens)), len(sources[row])
            losses = totals[index, steps] - logits[index, steps].gather(1, tokens[:, None])[:, 0]
            yield row, losses.double().cpu().numpy(), weights[index, steps, :keys], states[index, :keys]


def _evidence(
    translator: Translator, translations: Sequence[Translation], mean: np.ndarray, scale: np.ndarray
) -> Iterator[tuple[int, Evidence]]:
    """Yield the index of each translation and its evidence, given the moments of the encoder's states, (E,) each."""
    target, prompt = translator.target_tokenizer, len(prompt_of(translator.target_tokenizer))
    for row, losses, weights, states in _traces(translator, translations):
        if states.shape[1:] != mean.shape:
            raise RunError(f"{CONFIDENCE} is damaged: it is for {len(mean)} features, the model has {states.shape[1]}")
        item, novelty = translations[row], (((states - mean) / scale) ** 2).mean(1)
        source, tokens, words = item.source, item.tokens[prompt:], item.text.split()
        steps = np.column_stack((losses, -(weights * np.log(weights + 1e-12)).sum(1), weights @ novelty))
        bigrams, ratio = [*pairwise(tokens)], np.log(len(losses) / len(source.ids))
        coverage = weights.sum(0)
        sentence = (
            *_loss_features(losses),
            np.log(len(source.ids)),
            ratio,
            ratio**2,
            (coverage < UNCOVERED).mean(),
            steps[:, 1].mean(),
            1 - len(set(bigrams)) / max(len(bigrams), 1),
            np.mean([token == UNK for token in source.ids]),
            novelty.mean(),
            novelty.max(),
            steps[:, 2].mean(),
            steps[:, 2].max(),
        )
        indices = np.array([*word_indices(item.text, token_texts(item.tokens, target))[prompt:], None])
        features = np.zeros((len(words), len(WORD)))
        for word in range(len(words)):
            # a word of unknown pieces may have no token
            of_word = steps[indices == word] if (indices == word).any() else steps
            features[word] = (*_loss_features(of_word[:, 0]), *of_word[:, 1:].mean(0), *sentence[1:4:2])
        source_words = word_indices(source.text, text_pieces(source.text, source.ids, translator.source_tokenizer))
        grouped = [coverage[[index == word for index in source_words]] for word in range(len(source.text.split()))]
        of_words = np.array([group.mean() if len(group) else 1 for group in grouped])
        yield row, Evidence(np.array(sentence), words, features, of_words)


def _loss_features(losses: np.ndarray) -> tuple[float, float, float, float]:
    mean, largest = float(losses.mean()), float(losses.max())
    return mean, np.log(max(mean, 0) + SMALLEST_LOSS), largest, np.log(max(largest, 0) + SMALLEST_LOSS)


def _window_means(coverage: np.ndarray) -> np.ndarray:
    """Return the mean coverage of adjacent source words; a number that is never low for a shorter source."""
    return np.convolve(coverage, np.full(WINDOW, 1 / WINDOW), "valid") if len(coverage) >= WINDOW else np.array([1e6])


def _warnings(translation: Translation, coverage: np.ndarray, threshold: float) -> Iterator[str]:
    """Yield the faults of a translation; source words are counted from 1."""
    if repeats_itself(translation):
        yield "repeats itself"
    # a word is in WINDOW windows
    is_missed = np.convolve(_window_means(coverage) < threshold, np.ones(WINDOW)) > 0
    for is_range, words in groupby(range(len(is_missed)), key=is_missed.__getitem__):
        if is_range:
            first, *_, last = words
            yield f"source words {first + 1}-{last + 1} not attended to"
