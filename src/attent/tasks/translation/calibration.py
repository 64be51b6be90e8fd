"""The file `confidence.json` of a run, written by `attent calibrate`, and the regressions in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from attent.bounded import read_json
from attent.errors import DataError, RunError, reraise
from attent.runs.config import RunConfig
from attent.runs.durable import held, write_text
from attent.runs.folder import MODEL

CONFIDENCE = "confidence.json"
# The features of a sentence and of a word, in the order in which `attent.tasks.translation.confidence` computes them.
SENTENCE = (
    "loss",
    "log_loss",
    "largest_loss",
    "log_largest_loss",
    "length",
    "length_ratio",
    "squared_length_ratio",
    "uncovered",
    "attention_entropy",
    "repetition",
    "unknown",
    "novelty",
    "largest_novelty",
    "attended_novelty",
    "largest_attended_novelty",
)
WORD = (
    "loss",
    "log_loss",
    "largest_loss",
    "log_largest_loss",
    "attention_entropy",
    "attended_novelty",
    "log_sentence_loss",
    "log_largest_sentence_loss",
)
# Maximum bytes of the file: a model of 8,192 features takes a third of it.
LARGEST = 2**20
Number = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
# Steps of Newton's method, and the weight of the ridge penalty on standardized features.
STEPS, RIDGE = 25, 3.0
# Log-odds are limited to these, so that no probability is certain; and bins of the calibration error.
MAX_LOG_ODDS, BINS = 12.0, 10


class Regression(BaseModel, extra="forbid", frozen=True):
    """A logistic regression, p = 1 / (1 + exp(−(b + Σ wᵢ xᵢ))).

    Args:
        bias: b, in nats.
        weights: wᵢ by the name of the feature xᵢ.
    """

    bias: Number
    weights: dict[str, Number] = Field(min_length=1, max_length=100)

    @classmethod
    def fit(cls, names: tuple[str, ...], features: np.ndarray, labels: np.ndarray) -> Regression:
        """Fit a regression by Newton's method, with a ridge penalty on the weights of standardized features.

        Args:
            names: the names of the features.
            features: (N, F).
            labels: whether each example is positive, (N,).
        """
        mean, scale = features.mean(0), features.std(0) + 1e-6
        inputs = np.column_stack((np.ones(len(features)), (features - mean) / scale))
        penalty = np.diag([1e-3] + [RIDGE] * len(names))
        solution = np.zeros(len(names) + 1)
        for _ in range(STEPS):
            values = _sigmoid(inputs @ solution)
            hessian = (inputs.T * (values * (1 - values))) @ inputs + penalty
            solution += np.linalg.solve(hessian, inputs.T @ (labels - values) - penalty @ solution)
        weights = solution[1:] / scale
        return cls(bias=float(solution[0] - weights @ mean), weights=dict(zip(names, map(float, weights), strict=True)))

    def probabilities(self, features: np.ndarray) -> np.ndarray:
        """Return the probability of each row of features, (N,) of (N, F)."""
        return _sigmoid(features @ np.array([*self.weights.values()]) + self.bias)


class Calibration(BaseModel, extra="forbid", frozen=True):
    """The coefficients of a run's confidence, fitted to held-out pairs.

    Args:
        format: the version of this format.
        weights: the SHA-256 of the weights that they were fitted to; None if the run has none.
        label: what makes a sentence usable, for people to read.
        pairs: the number of held-out pairs.
        sentence: the probability that a translation is usable.
        word: the probability that a word of a translation is right.
        mean: the mean of the encoder's states over the source tokens of the held-out pairs, (E,).
        scale: their standard deviation, (E,).
        coverage: the attention, in tokens' worth, below which three adjacent source words count as not attended to.
    """

    format: Literal[1] = 1
    weights: str | None = Field(max_length=64)
    label: str = Field(max_length=200)
    pairs: int = Field(ge=1, le=2**31)
    sentence: Regression
    word: Regression
    mean: list[Number] = Field(max_length=2**14)
    scale: list[Annotated[Number, Field(ge=1e-6)]] = Field(max_length=2**14)
    coverage: Annotated[Number, Field(ge=0)]

    def write(self, path: Path) -> None:
        """Write the calibration into a run folder, whose other files stay as they are.

        Raises:
            RunError: another process is training the run, or the folder cannot be written.
        """
        with held(path):
            write_text(path / CONFIDENCE, json.dumps(self.model_dump(), indent=1) + "\n")


def read_calibration(path: Path, config: RunConfig) -> Calibration | None:
    """Read the calibration of a run; None if there is none for its current weights.

    Args:
        path: the run folder.
        config: its config.

    Raises:
        RunError: the file is damaged.
    """
    if not (file := path / CONFIDENCE).exists():
        return None
    with reraise(RunError, f"{file} is damaged", ValidationError, OSError, DataError):
        calibration = Calibration.model_validate(read_json(file, LARGEST))
    names = tuple(calibration.sentence.weights), tuple(calibration.word.weights)
    if names != (SENTENCE, WORD) or len(calibration.mean) != len(calibration.scale):
        raise RunError(f"{file} is damaged: its features are not those of this version; attent calibrate writes it")
    return calibration if calibration.weights == config.digests.get(MODEL) else None


def area_under_curve(values: np.ndarray, labels: np.ndarray) -> float:
    """Return the probability that a positive example has a larger value than a negative one; ties count one half.

    Args:
        values: (N,).
        labels: whether each example is positive, (N,).
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks, positives = (counts.cumsum() - (counts - 1) / 2)[inverse], labels.sum()
    return float((ranks[labels].sum() - positives * (positives + 1) / 2) / (positives * (len(labels) - positives)))


def calibration_error(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the expected calibration error, Σ |bin| / N · |share of positives − mean probability| of ten equal bins.

    Source: Guo et al. (2017), equation 3, arXiv 1706.04599.

    Args:
        probabilities: (N,).
        labels: whether each example is positive, (N,).
    """
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(bins, labels - probabilities)).sum() / len(labels))


def _sigmoid(log_odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(log_odds, -MAX_LOG_ODDS, MAX_LOG_ODDS)))
