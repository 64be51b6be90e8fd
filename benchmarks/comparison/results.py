"""The results of a comparison: tables, figures with all their points, and the files of both.

Pictures are drawn with matplotlib, without touching its global state.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from _report import Report, finite

from attent.errors import AttentError
from attent.runs.durable import new_file, write_text
from attent.views.palette import color
from attent.views.picture import new_figure

RESAMPLES, LEVEL = 1000, 0.95
ORDERS = 4

# Numbers for each sentence, (n, k), whose sums determine a score.
Statistics = np.ndarray


@dataclass(frozen=True)
class Measure:
    """A score that is computed from sums over sentences.

    Args:
        name: name of the score.
        statistics: function from translations and references to the numbers of each sentence, (n, k).
        score: function from their sums, (k,), to the score, 0 to 100.
    """

    name: str
    statistics: Callable[[Sequence[str], Sequence[str]], Statistics]
    score: Callable[[np.ndarray], float]


class Estimate(NamedTuple):
    """A score with its 95 % interval.

    Args:
        score: the mean over the seeds.
        low: lower end of the interval.
        high: upper end of the interval.
        sentences: the number of test sentences.
        by_seed: the score of each seed.
    """

    score: float
    low: float
    high: float
    sentences: int
    by_seed: tuple[float, ...]

    def __str__(self) -> str:
        """Return the score, its interval, and the score of each seed if there are several."""
        seeds = f" ({', '.join(f'{score:.1f}' for score in self.by_seed)})" if len(self.by_seed) > 1 else ""
        return f"{self.score:.1f} [{self.low:.1f}, {self.high:.1f}]{seeds}"


def estimate(measure: Measure, by_seed: Sequence[Statistics]) -> Estimate:
    """Estimate the mean score of several seeds on the same sentences, with an interval from resampling them.

    Each resample draws n of the n sentences with replacement, the same for every seed (Koehn 2004, "Statistical
    Significance Tests for Machine Translation Evaluation", §3); the interval excludes 2.5 % of the resamples on either
    side. It shows how much the score depends on the sentences; the scores of the seeds show how much it depends on the
    seed.

    Args:
        measure: the score.
        by_seed: statistics of the sentences, one array (n, k) per seed, with at least one sentence.
    """
    statistics = np.stack(by_seed).astype(np.float64)  # (seeds, n, k)
    sentences = statistics.shape[1]
    counts = np.random.default_rng(0).multinomial(
        sentences, np.full(sentences, 1 / sentences), size=RESAMPLES
    )  # (resamples, n)
    sums = counts @ statistics  # (seeds, resamples, k)
    means = np.mean([[measure.score(draw) for draw in draws] for draws in sums], axis=0)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    scores = tuple(float(measure.score(total)) for total in statistics.sum(1))
    return Estimate(float(np.mean(scores)), float(low), float(high), sentences, scores)


def _match_statistics(translations: Sequence[str], references: Sequence[str]) -> Statistics:
    pairs = zip(translations, references, strict=True)
    return np.array([[translation == reference, True] for translation, reference in pairs], dtype=float)


def _bleu_statistics(translations: Sequence[str], references: Sequence[str], *, tokenize: str) -> Statistics:
    """Return the n-gram matches and totals of each sentence by order, and the lengths of translation and reference."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=tokenize, force=True)
    scores = [
        metric.corpus_score([translation], [[reference]])
        for translation, reference in zip(translations, references, strict=True)
    ]
    return np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores], dtype=float)


def _bleu(sums: np.ndarray) -> float:
    from sacrebleu.metrics.bleu import BLEU

    totals = [round(number) for number in sums]
    return BLEU.compute_bleu(
        totals[:ORDERS], totals[ORDERS : 2 * ORDERS], totals[-2], totals[-1], smooth_method="exp"
    ).score


EXACT_MATCH = Measure("exact match", _match_statistics, lambda sums: 100 * float(sums[0] / sums[1]))
# for tokenized text
BLEU_OF_WORDS = Measure("BLEU", partial(_bleu_statistics, tokenize="none"), _bleu)
# for untokenized text
BLEU = Measure("BLEU", partial(_bleu_statistics, tokenize="13a"), _bleu)


# Lines are told apart by color, marker and dash.
COLORS = tuple(map(color, ("query", "key", "value", "weight", "ink", "quiet")))
MARKERS = ("s", "D", "o", "^", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (8, 2)), (0, (4, 1, 1, 1, 1, 1)))
DOTS_PER_INCH = 150
# Characters per line of a title.
TITLE_WIDTH = 80
# Number of markers on a line with many points.
MARKERS_PER_LINE = 12
# Names up to this many characters are not slanted under the axis.
UPRIGHT_LETTERS = 4
# Longer names, such as paths, are cut to their last characters to leave room for the figure.
NAME_LETTERS = 28


class Point(NamedTuple):
    """A point in a figure, with its interval, number of sentences and value of each seed if it has them."""

    x: float | str
    y: float
    low: float | None = None
    high: float | None = None
    sentences: int | None = None
    by_seed: tuple[float, ...] = ()


@dataclass(frozen=True)
class Series:
    """The points of one model."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Figure:
    """A plot of lines over numbers, or of dots over names.

    Args:
        name: name of its file, without the ending.
        title: title above the picture.
        x: title of the horizontal axis, with its unit.
        y: title of the vertical axis, with its unit.
        series: the lines.
        log_x: whether the horizontal axis is logarithmic.
        log_y: whether the vertical axis is logarithmic.
        kind: "lines", or "dots" if x is a name.
    """

    name: str
    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    kind: Literal["lines", "dots"] = "lines"

    def values(self) -> dict[str, Any]:
        """Return the figure as plain values."""
        series = [
            {"name": series.name, "points": [point._asdict() for point in series.points]} for series in self.series
        ]
        return {**asdict(self), "series": series}


@dataclass(frozen=True)
class ModelComparison:
    """The results of one comparison of models.

    Args:
        name: name of its files, without the ending.
        report: its tables.
        figures: its figures.
    """

    name: str
    report: Report
    figures: Sequence[Figure]

    def markdown(self, pictures: Sequence[str]) -> str:
        """Return a Markdown page with the tables and the figures whose file is among `pictures`."""
        title, *lines = self.report.lines()[1:]
        lines.insert(0, title.removeprefix("#"))
        for figure in self.figures:
            if f"{figure.name}.png" in pictures:
                lines += ["", f"![{figure.title}]({figure.name}.png)"]
        return "\n".join(lines) + "\n"

    def values(self) -> dict[str, Any]:
        """Return the comparison as plain values for JSON; numbers that are not finite become None."""
        return finite(
            {"name": self.name, **self.report.values(), "figures": [figure.values() for figure in self.figures]}
        )

    def write(self, folder: Path) -> list[Path]:
        """Write NAME.md, NAME.json and a picture of each figure into a folder.

        Returns:
            The paths of the files, without pictures if matplotlib is not installed.

        Raises:
            RunError: a file cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        pictures: list[Path] = []
        with suppress(AttentError):
            pictures = [draw(figure, folder / f"{figure.name}.png") for figure in self.figures]
        texts = {
            f"{self.name}.md": self.markdown([picture.name for picture in pictures]),
            f"{self.name}.json": json.dumps(self.values(), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        }
        for name, text in texts.items():
            write_text(folder / name, text)
        return [*(folder / name for name in texts), *pictures]


def draw(figure: Figure, path: Path) -> Path:
    """Draw a figure into a PNG file and return its path.

    Raises:
        AttentError: matplotlib is not installed.
        RunError: the file cannot be written.
    """
    picture = plot(figure)
    with new_file(path) as file:
        picture.savefig(file, dpi=DOTS_PER_INCH, format="png")
    return path


def plot(figure: Figure) -> Any:
    """Return the figure as a matplotlib figure.

    Raises:
        AttentError: matplotlib is not installed.
    """
    x_values = list(dict.fromkeys(point.x for series in figure.series for point in series.points))
    names = [str(x) for x in x_values] if figure.kind == "dots" else []
    picture = new_figure(max(6.4, 1.5 + 0.62 * len(names)), 4.2)
    axes = picture.subplots()
    for number in range(len(figure.series)):
        _plot_series(axes, figure, number, names)
    axes.set(xlabel=figure.x, ylabel=figure.y)
    axes.set_title(textwrap.fill(figure.title, TITLE_WIDTH), size=10, loc="left")
    if figure.log_x:
        axes.set_xscale("log", base=2)
        ticks = sorted(map(float, x_values))
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    if figure.log_y:
        axes.set_yscale("log")
    elif figure.kind == "lines":
        axes.set_ylim(bottom=0)
    if names:
        slant = {"rotation": 40, "ha": "right"} if max(map(len, names)) > UPRIGHT_LETTERS else {}
        labels = [name if len(name) <= NAME_LETTERS else f"…{name[1 - NAME_LETTERS :]}" for name in names]
        axes.set_xticks(range(len(names)), labels, **slant)
    axes.grid(color=color("line"), linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if len(figure.series) > 1:
        # below the axes, since dots and bands leave no room inside
        picture.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=2)
    return picture


def _plot_series(axes: Any, figure: Figure, number: int, names: list[str]) -> None:
    series = figure.series[number]
    style = {
        "color": COLORS[number % len(COLORS)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4.5,
        "label": series.name,
    }
    y = [point.y for point in series.points]
    low = [point.y if point.low is None else point.low for point in series.points]
    high = [point.y if point.high is None else point.high for point in series.points]
    if names:
        # place the dots of several series side by side
        shift = 0.14 * (number - (len(figure.series) - 1) / 2)
        x = [names.index(str(point.x)) + shift for point in series.points]
        errors = [
            [max(a - b, 0.0) for a, b in zip(upper, lower, strict=True)] for upper, lower in ((y, low), (high, y))
        ]
        axes.errorbar(x, y, yerr=errors, linestyle="none", capsize=2.5, linewidth=1.0, **style)
        return
    x = [point.x for point in series.points]
    dash = DASHES[number % len(DASHES)]
    axes.plot(x, y, linewidth=1.5, linestyle=dash, markevery=max(len(x) // MARKERS_PER_LINE, 1), **style)
    axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
