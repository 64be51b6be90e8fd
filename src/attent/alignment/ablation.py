"""Head ablation: the cost of changing one head on given examples, with bootstrap intervals, and tables of costs.

Sources: Michel et al. (2019), §3.2, arXiv 1905.10650; intervals as in Koehn (2004), https://aclanthology.org/W04-3250.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor, nn

from attent.attention.capture.intervene import head_means, intervene
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.statistics import HeadStatistics
from attent.errors import check_known, refuse
from attent.ops import packed_linear
from attent.ops.packed_linear import WeightType

CHANGES = ("zero", "uniform", "mean")
# Bootstrap resamples per interval, and the numbers gathered for them at a time.
RESAMPLES, GATHERED = 1000, 2**22
# Examples for the mean entropy and distance of a head, and for its mean context.
SUMMARIZED, AVERAGED = 100, 1000
# exp overflows a float above this
MAX_NATS = 700.0
# Heads listed below the table of costs.
LISTED = 10


@dataclass(frozen=True)
class Metric:
    """A metric for evaluating a run.

    Args:
        name: its name, such as "loss".
        unit: unit of the score, such as "nats per token".
        sign: 1 if higher scores are worse, −1 if lower scores are worse.
        score: computes scores from sums over examples, (R, k) → (R,).
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
    """Evaluates a model, in its current state, on examples.

    Args:
        model: in evaluation mode.
        metric: the metric to compute.
    """

    def __init__(self, model: nn.Module, metric: Metric) -> None:
        self.model, self.metric = model, metric

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of examples, N."""

    @abstractmethod
    def statistics(self) -> np.ndarray:
        """Return the statistics of each example, (N, k); the metric is computed from their sums."""

    @abstractmethod
    def maps(self, example: int) -> Mapping[str, AttentionMap]:
        """Run the model on one example, without padding, and return every attention map by module name."""


class HeadSummary(NamedTuple):
    """Means over the queries of a head.

    Args:
        entropy: mean entropy of the weights, in nats; None if they are not distributions.
        distance: mean distance, in tokens; also None if the keys belong to another text.
    """

    entropy: float | None
    distance: float | None


UNKNOWN = HeadSummary(None, None)


@dataclass(frozen=True)
class HeadCost:
    """The cost of changing a head.

    Args:
        module: the path of its module.
        head: its index.
        score: the metric with the head changed.
        cost: difference from the unchanged model, positive if worse.
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
    """Return a summary of every head, by module path and head index, averaged over the first examples.

    Raises:
        ArgumentError: the model has no attention, or there are no examples.
    """
    statistics: dict[str, HeadStatistics] = {}
    for example in range(min(len(judge), SUMMARIZED)):
        for path, weights in judge.maps(example).items():
            rows, is_self_attention = weights.dense()[0].float().cpu(), not path.endswith("cross_attention")
            if path not in statistics:
                statistics[path] = HeadStatistics(
                    len(rows), is_distribution=weights.is_distribution, is_self_attention=is_self_attention
                )
            statistics[path].add(rows, weights.call.pairs().query_position[0].cpu())
    refuse((not statistics, "heads cannot be evaluated: the model has no attention, or there are no examples"))
    return {
        (path, head): HeadSummary(means["entropy"], means["distance"])
        for path, heads in statistics.items()
        for head, means in enumerate(heads.named())
    }


class Ablation:
    """Measures the costs of changing a model's heads on a judge's examples.

    Args:
        judge: evaluates the model.
        change: "zero", "uniform" or "mean" (over the judge's first examples); see `attent.intervene`.

    Raises:
        UnknownNameError: there is no such change.
        ArgumentError: there are no examples.
    """

    def __init__(self, judge: HeadJudge, change: str = "zero") -> None:
        check_known("change of a head", change, CHANGES)
        self.judge, self.change = judge, change
        self.score, self._scores = _scores(judge.metric, _statistics(judge))
        self.means = _means(judge) if change == "mean" else None

    def cost(self, module: str, head: int, summary: HeadSummary = UNKNOWN) -> HeadCost:
        """Return the cost of changing one head, on the same examples and resamples as the unchanged model."""
        metric = self.judge.metric
        with intervene(self.judge.model, {module: {head: self.change}}, means=self.means):  # pyright: ignore[reportArgumentType]
            score, scores = _scores(metric, _statistics(self.judge))
        low, high = np.percentile(metric.sign * (scores - self._scores), (2.5, 97.5)).tolist()
        return HeadCost(module, head, score, metric.sign * (score - self.score), low, high, *summary)


def _statistics(judge: HeadJudge) -> np.ndarray:
    """Return a judge's statistics of each example, with every layer of a quantized model computed in float32.

    A stack with a changed head is computed in float32 too, so the cost of a head does not include that of quantization.
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
    """Return a metric of examples from their statistics (N, k), and its values on bootstrap resamples, (R,)."""
    refuse((not len(statistics), "heads cannot be evaluated without examples"))
    return float(metric.score(statistics.sum(0, keepdims=True))[0]), metric.score(resampled_sums(statistics))


def resampled_sums(statistics: np.ndarray) -> np.ndarray:
    """Return sums of statistics (N, k) over bootstrap resamples, (R, k); the same N always gives the same resamples."""
    generator, count = np.random.default_rng(0), len(statistics)
    size = max(GATHERED // statistics.size, 1)
    sizes = [min(size, RESAMPLES - begin) for begin in range(0, RESAMPLES, size)]
    return np.concatenate([statistics[generator.integers(count, size=(rows, count))].sum(1) for rows in sizes])


def judge_heads(judge: HeadJudge, change: str, say: Callable[[str], None]) -> tuple[Ablation, list[HeadCost]]:
    """Measure the costs of all heads.

    Args:
        judge: evaluates the model.
        change: see `Ablation`.
        say: shows the progress to the user.
    """
    ablation, summaries, costs = Ablation(judge, change), head_summaries(judge), list[HeadCost]()
    say(f"{len(summaries)} heads on {len(judge):,} examples")
    for (module, head), summary in summaries.items():
        costs.append(ablation.cost(module, head, summary))
        say(f"{len(costs)} of {len(summaries)}: {module}, head {head}")
    return ablation, costs


def ranked(costs: Iterable[HeadCost]) -> list[HeadCost]:
    """Return the heads sorted by cost, highest first."""
    return sorted(costs, key=lambda cost: (-cost.cost, cost.module, cost.head))


def cost_lines(metric: Metric, costs: Sequence[HeadCost]) -> list[str]:
    """Format the costs as a table of modules × heads, followed by the heads with the highest costs."""
    modules = list(dict.fromkeys(cost.module for cost in costs))
    by_head = {(cost.module, cost.head): cost.cost for cost in costs}
    heads = max(cost.head for cost in costs) + 1
    rows = [["", *map(str, range(heads))]]
    rows += [
        [
            module,
            *(_signed(metric, by_head[module, head]) if (module, head) in by_head else "" for head in range(heads)),
        ]
        for module in modules
    ]
    return [*columns(rows), "", *ranking_lines(metric, ranked(costs)[:LISTED])]


def ranking_lines(metric: Metric, costs: Sequence[HeadCost]) -> list[str]:
    """Format a table with one line per head: its cost, interval, entropy and distance."""
    rows = [["module", "head", "cost", "95 % interval", "entropy, nats", "distance, tokens"]]
    for cost in costs:
        interval = f"{_signed(metric, cost.low)} to {_signed(metric, cost.high)}"
        measures = ("–" if measure is None else f"{measure:.2f}" for measure in (cost.entropy, cost.distance))
        rows.append([cost.module, str(cost.head), _signed(metric, cost.cost), interval, *measures])
    return columns(rows)


def _signed(metric: Metric, number: float) -> str:
    return f"{number:+.{2 if metric.name in ('accuracy', 'BLEU') else 4}f}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows as lines, with the first column left-aligned and the others right-aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
