"""Why attention won, and why it is as it is: gradients by distance, time by length, the scale of scores, and heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attent.data.dates.corpus import HELD_OUT_DATES
from attent.experiments.benchmarking.machine import machine
from attent.experiments.benchmarking.report import Column, Report, Table, three_digits
from attent.experiments.comparing import gradients, settings, speed, widths
from attent.experiments.comparing.confidence import EXACT_MATCH, estimate
from attent.experiments.comparing.length import JUDGING_DATES, said
from attent.experiments.comparing.results import Figure, Point, Result, Series, table
from attent.experiments.comparing.runs import Planned, Say, claim, outcome, train, translated
from attent.experiments.comparing.settings import Options
from attent.training.progress import Progress

SEEDS = 1
SCORES, WIDTHS, UPDATES_OF_WIDTHS, MINUTES_OF_WIDTHS = ("dot", "scaled_dot"), (16, 32, 64, 128, 256), 600, 2.0
HEADS, UPDATES_OF_HEADS, MINUTES_OF_HEADS = (1, 2, 4, 8), 1500, 2.0
# Sentences whose entropies are measured; minutes that the measurements take.
SENTENCES, MEASURING = 64, 2.0
DISTANCES = (0, 1, 2, 5, 10, 20, 50, 100)


def compare(options: Options, *, say: Say = print, progress: Progress | None = None) -> Result:
    """Measure gradients and times, and train Transformers of several widths and numbers of heads on dates.

    Raises:
        ArgumentError: the folder of the comparison is another's.
    """
    seeds = range(1, (options.seeds or SEEDS) + 1)
    claim(options.out, "why")
    of_widths = {(score, width): [_of_width(score, width, seed, options) for seed in seeds] for score in SCORES for width in WIDTHS}
    of_heads = {heads: [_of_heads(heads, seed, options) for seed in seeds] for heads in HEADS}
    everything = [one for several in (*of_widths.values(), *of_heads.values()) for one in several]
    train(everything, options.out, beside=MEASURING + JUDGING_DATES * len(everything), say=say, progress=progress)
    say("measuring gradients by distance")
    back = gradients.measure()
    say("measuring the time of a step by length")
    times = speed.measure()
    scales, loss = _scales(of_widths, options)
    heads, dots = _heads(of_heads, options, say)
    tables = [_by_x("Gradient of the last output by distance", "distance, steps", back, DISTANCES), _times(times), scales, heads]
    notes = [
        f"Seeds {', '.join(map(str, seeds))}. Gradients and entropies are those of layers before any training; "
        f"{math.log(widths.KEYS):.2f} nats is the entropy of a query that looks at {widths.KEYS} keys alike."
    ]
    return Result("why", Report("Why", machine(), tables, notes), [back, times, loss, dots])


def _of_width(score: str, width: int, seed: int, options: Options) -> Planned:
    model = {**settings.TRANSFORMER, "score": score, "width": width, "feed_forward": 2 * width, "heads": 1}
    updates, minutes = options.updates or UPDATES_OF_WIDTHS, options.minutes or MINUTES_OF_WIDTHS
    return Planned(f"widths/{score}-{width}-{seed}", settings.on_dates(model, updates=updates, minutes=minutes, seed=seed))


def _of_heads(heads: int, seed: int, options: Options) -> Planned:
    updates, minutes = options.updates or UPDATES_OF_HEADS, options.minutes or MINUTES_OF_HEADS
    model = {**settings.TRANSFORMER, "heads": heads}
    return Planned(f"heads/{heads}-{seed}", settings.on_dates(model, updates=updates, minutes=minutes, seed=seed))


def _scales(planned: dict[tuple[str, int], list[Planned]], options: Options) -> tuple[Table, Figure]:
    """Loss and entropy by score and width."""
    rows: list[dict[str, Any]] = []
    for (score, width), several in planned.items():
        outcomes = [outcome(one, options.out) for one in several]
        losses = [one.loss for one in outcomes]
        pairs = settings.corpus(several[0].settings.dates).validation[:SENTENCES]
        row = {"score": score, "width": width, "loss": float(np.mean(losses)), "losses": losses}
        row["updates"] = float(np.mean([one.updates for one in outcomes]))
        row["entropy_random"] = widths.of_random(score, width)
        rows.append(row | {"entropy_model": widths.of_model(several[0].settings.model, pairs)})
    columns = [
        Column("score", "score"),
        Column("width", "Dk", "d"),
        Column("entropy_random", f"entropy, random queries and {widths.KEYS} keys, nats", ".2f"),
        Column("entropy_model", "entropy, first layer before training, nats", ".2f"),
        Column("loss", "loss after training, nats/token", ".4f"),
        Column("updates", "updates", ",.0f"),
    ]
    series = [
        Series(score, [Point(float(row["width"]), row["loss"], by_seed=tuple(row["losses"])) for row in rows if row["score"] == score])
        for score in SCORES
    ]
    title = "Loss on dates after the same training, one head as wide as the model"
    figure = Figure("why-widths", title, "width Dk", "validation loss, nats per token", series, log_x=True, log_y=True)
    return table("Dot and scaled dot product by width", columns, rows), figure


def _heads(planned: dict[int, list[Planned]], options: Options, say: Say) -> tuple[Table, Figure]:
    """Exact match by the number of heads."""
    rows: list[dict[str, Any]] = []
    points: list[Point] = []
    for heads, several in planned.items():
        test = settings.corpus(several[0].settings.dates).held_out[HELD_OUT_DATES]
        sources, references = [pair.source for pair in test], [pair.target for pair in test]
        made = [translated(one, options.out, HELD_OUT_DATES, sources, say) for one in several]
        found = estimate(EXACT_MATCH, [EXACT_MATCH.statistics(one.texts, references) for one in made])
        points.append(Point(str(heads), found.score, found.low, found.high, found.sentences, found.by_seed))
        losses = [outcome(one, options.out) for one in several]
        row = {"heads": str(heads), "score": said(found), "values": found._asdict(), "parameters": losses[0].parameters}
        row["updates"] = float(np.mean([one.updates for one in losses]))
        speeds = [one.tokens_per_second for one in losses]
        rows.append(row | {"loss": float(np.mean([one.loss for one in losses])), "tokens_per_second": float(np.mean(speeds))})
    columns = [
        Column("heads", "heads"),
        Column("score", "exact match on held-out dates [95 %]"),
        Column("loss", "loss, nats/token", ".4f"),
        Column("parameters", "parameters", ",.0f"),
        Column("updates", "updates", ",.0f"),
        Column("tokens_per_second", "tokens/s", ",.0f"),
    ]
    title = f"Heads of a Transformer of width {settings.TRANSFORMER['width']} on dates"
    return table(title, columns, rows), Figure("why-heads", title, "heads", "exact match, per cent", [Series("", points)], kind="dots")


def _by_x(title: str, what: str, figure: Figure, shown: Sequence[float], form: Callable[[float], str] = "{:.2g}".format) -> Table:
    """A table of some of a figure's points, a column for each line; nothing where the line has ended."""
    rows: list[dict[str, Any]] = []
    for x in shown:
        row: dict[str, Any] = {"x": f"{x:g}"}
        rows.append(row | {line.name: form(point.y) for line in figure.series for point in line.points if point.x == x})
    return table(title, [Column("x", what), *(Column(line.name, line.name) for line in figure.series)], rows)


def _times(figure: Figure) -> Table:
    lengths = [float(point.x) for point in figure.series[0].points]
    return _by_x("Milliseconds of a step of training", "length, tokens", figure, lengths, three_digits)
