"""Ablation of heads: what a run loses on given examples when one head is changed, with bootstrap intervals.

Sources: Michel et al. (2019), §3.2, arXiv 1905.10650; intervals as in Koehn (2004), https://aclanthology.org/W04-3250.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor, nn

from attent.attention.capture.intervene import head_means, intervene
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, check_known
from attent.ops import packed_linear
from attent.ops.packed_linear import WeightType

CHANGES = ("zero", "uniform", "mean")
# Resamples of an interval, and the numbers gathered for them at once.
RESAMPLES, GATHERED = 1000, 2**22
# Examples that the entropy and the distance of a head are means over, and those that its mean context is of.
SUMMARIZED, AVERAGED = 100, 1000
# e to more than this is no float
MAX_NATS = 700.0


@dataclass(frozen=True)
class Metric:
    """A number that a run is judged by.

    Args:
        name: such as "loss".
        unit: of the number, such as "nats per token".
        sign: 1 if a larger number is worse, −1 if a smaller one is.
        score: the number, from sums over examples: (R, k) → (R,).
    """

    name: str
    unit: str
    sign: int
    score: Callable[[np.ndarray], np.ndarray]


def _ratio(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / sums[:, 1]


LOSS = Metric("loss", "nats per token", 1, _ratio)
CLASS_LOSS = Metric("loss", "nats per example", 1, _ratio)
ACCURACY = Metric("accuracy", "%", -1, lambda sums: 100 * _ratio(sums))
PERPLEXITY = Metric("perplexity", "", 1, lambda sums: np.exp(np.minimum(_ratio(sums), MAX_NATS)))


class HeadJudge(ABC):
    """Judges a model on examples, as it is when it is asked.

    Args:
        model: in evaluation mode.
        metric: of the judgement.
    """

    def __init__(self, model: nn.Module, metric: Metric) -> None:
        self.model, self.metric = model, metric

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of examples, N."""

    @abstractmethod
    def statistics(self) -> np.ndarray:
        """Return the numbers of each example, (N, k), whose sums the metric takes."""

    @abstractmethod
    def maps(self, example: int) -> Mapping[str, AttentionMap]:
        """Run the model over one example, without padding, and return every map by the name of its module."""


class HeadSummary(NamedTuple):
    """The mean over the queries of a head.

    Args:
        entropy: of the weights, in nats; None if they are no distribution.
        distance: in tokens; None too if keys are of another text.
    """

    entropy: float | None
    distance: float | None


UNKNOWN = HeadSummary(None, None)


@dataclass(frozen=True)
class HeadCost:
    """The loss of a head.

    Args:
        module: the path of its module.
        head: its index.
        score: the metric with the head changed.
        cost: how much worse that is than without a change.
        low: the lower end of the cost's 95 % interval.
        high: the upper end.
        entropy: see `HeadSummary`.
        distance: see `HeadSummary`.
    """

    module: str
    head: int
    score: float
    cost: float
    low: float
    high: float
    entropy: float | None = None
    distance: float | None = None


def head_summaries(judge: HeadJudge) -> dict[tuple[str, int], HeadSummary]:
    """Return every head of a model, by the path of its module and its index, with means over the first examples.

    Raises:
        ArgumentError: the model has no attention, or there is no example.
    """
    totals: dict[str, tuple[Tensor | None, ...]] = {}
    counts: dict[str, int] = {}
    heads: dict[str, int] = {}
    for example in range(min(len(judge), SUMMARIZED)):
        for path, weights in judge.maps(example).items():
            sums = (
                _summed(weights, "entropy"),
                None if path.endswith("cross_attention") else _summed(weights, "distance"),
            )
            before = totals.get(path, sums)
            if path in totals:
                sums = tuple(
                    None if total is None or part is None else total + part
                    for total, part in zip(before, sums, strict=True)
                )
            totals[path], heads[path] = sums, weights.shape[1]
            counts[path] = counts.get(path, 0) + weights.shape[2]
    if not totals:
        raise ArgumentError("there is no attention, or no example, to judge heads by")
    return {
        (path, head): HeadSummary(
            *(None if total is None else float(total[head]) / counts[path] for total in totals[path])
        )
        for path in totals
        for head in range(heads[path])
    }


def _summed(weights: AttentionMap, measure: str) -> Tensor | None:
    """Return the sum of a measure over the queries of a map's first sequence, (H,).

    None if the weights are no distribution.
    """
    if not weights.is_distribution:
        return None
    return (weights.entropy() if measure == "entropy" else weights.distance())[0].double().sum(-1).cpu()


class Ablation:
    """Costs of the heads of a model on a judge's examples.

    Args:
        judge: of the model.
        change: "zero", "uniform" or "mean", over the judge's first examples: see `attent.intervene`.

    Raises:
        UnknownNameError: there is no such change.
        ArgumentError: there is no example.
    """

    def __init__(self, judge: HeadJudge, change: str = "zero") -> None:
        check_known("change of a head", change, CHANGES)
        self.judge, self.change = judge, change
        statistics = _statistics(judge)
        self.score, self._scores = _scores(judge.metric, statistics)
        self.means = _means(judge) if change == "mean" else None

    def cost(self, module: str, head: int, summary: HeadSummary = UNKNOWN) -> HeadCost:
        """Judge the model with one head changed, on the same examples and resamples as without."""
        metric = self.judge.metric
        with intervene(self.judge.model, {module: {head: self.change}}, means=self.means):  # pyright: ignore[reportArgumentType]
            statistics = _statistics(self.judge)
        score, scores = _scores(metric, statistics)
        low, high = np.percentile(metric.sign * (scores - self._scores), (2.5, 97.5)).tolist()
        return HeadCost(module, head, score, metric.sign * (score - self.score), low, high, *summary)


def _statistics(judge: HeadJudge) -> np.ndarray:
    """Return the numbers of each example as a judge finds them, every layer of a quantized model computed in float32.

    A stack with a changed head is computed so, and a head shall not pay for what the other type of weights costs.
    """
    is_quantized = packed_linear.kind_of(judge.model) is not WeightType.FLOAT32
    with head_means(judge.model) if is_quantized else nullcontext():
        return judge.statistics()


def _means(judge: HeadJudge) -> Mapping[str, Tensor]:
    with head_means(judge.model) as means:
        for example in range(min(len(judge), AVERAGED)):
            judge.maps(example)
    return means


def _scores(metric: Metric, statistics: np.ndarray) -> tuple[float, np.ndarray]:
    """Return a metric of examples with these statistics (N, k), and of the same resamples of N each time, (R,)."""
    if not len(statistics):
        raise ArgumentError("there is no example to judge heads by")
    return float(metric.score(statistics.sum(0, keepdims=True))[0]), metric.score(resampled_sums(statistics))


def resampled_sums(statistics: np.ndarray) -> np.ndarray:
    """Return the sums of statistics (N, k) over resamples of N examples, (R, k): the same examples for the same N."""
    generator, count = np.random.default_rng(0), len(statistics)
    size = max(GATHERED // statistics.size, 1)
    sizes = [min(size, RESAMPLES - begin) for begin in range(0, RESAMPLES, size)]
    return np.concatenate([statistics[generator.integers(count, size=(rows, count))].sum(1) for rows in sizes])
