"""Whether a translation gets worse with the length of what is translated: a fixed vector against attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attent.data.dates.corpus import HELD_OUT_DATES
from attent.data.text import Pair
from attent.experiments.benchmarking.machine import machine
from attent.experiments.benchmarking.report import Column, Report, Table
from attent.experiments.comparing import captions, settings
from attent.experiments.comparing.confidence import BLEU_OF_WORDS, EXACT_MATCH, RESAMPLES, Estimate, Measure, estimate
from attent.experiments.comparing.results import Figure, Point, Result, Series, table
from attent.experiments.comparing.runs import Planned, Say, averaged, claim, outcome, train, translated
from attent.experiments.comparing.settings import MODELS, TITLES, Options, chosen
from attent.training.progress import Progress

UPDATES, MINUTES_ON_DATES, MINUTES_ON_CAPTIONS, SEEDS = 1500, 3.0, 5.0, 2
# What judging a model takes, in minutes.
JUDGING_DATES, JUDGING_CAPTIONS = 0.25, 1.5
# Fewer sentences than this say little.
LEAST = 20


@dataclass(frozen=True)
class Corpus:
    """What models are trained and tested on.

    Args:
        name: of its folder and its figure.
        title: of its figure.
        unit: what a source's length is counted in.
        length: of a source.
        width: of a range of lengths that is judged together.
        measure: the score.
        test: the pairs to judge by.
        planned: a model's name and a seed → its training.
    """

    name: str
    title: str
    unit: str
    length: Callable[[str], int]
    width: int
    measure: Measure
    test: Sequence[Pair]
    planned: Callable[[str, int], Planned]


def compare(options: Options, *, say: Say = print, progress: Progress | None = None) -> Result:
    """Train each model on dates, and on captions joined where their folder is given, and judge them by source length.

    The figure is that of Bahdanau et al. (2015), figure 2, arXiv 1409.0473: BLEU against the length of the source, for models
    trained on the same sentences.

    Raises:
        ArgumentError: a model is unknown, or the folder of captions or of the comparison is another's.
    """
    models, seeds = chosen("model", options.models, MODELS), range(1, (options.seeds or SEEDS) + 1)
    claim(options.out, "length")
    corpora = [_dates(options)] + ([] if options.data is None else [_captions(options)])
    planned = [corpus.planned(name, seed) for corpus in corpora for name in models for seed in seeds]
    judging = len(models) * len(seeds) * (JUDGING_DATES + (0.0 if options.data is None else JUDGING_CAPTIONS))
    train(planned, options.out, beside=judging, say=say, progress=progress)
    tables: list[Table] = []
    figures: list[Figure] = []
    for corpus in corpora:
        rows, series = zip(*(_judged(corpus, name, seeds, options, say) for name in models), strict=True)
        tables += [_summary(corpus, rows), _by_length(corpus, series)]
        title = f"{corpus.title}: {said_of(seeds)}, with 95 % intervals"
        figures.append(Figure(f"length-{corpus.name}", title, f"source length, {corpus.unit}", f"{corpus.measure.name}, 0 to 100", series))
    notes = [
        f"Seeds {', '.join(map(str, seeds))}. An interval holds 95 % of {RESAMPLES:,} resamples of the test sentences; the scores of "
        "several seeds stand in brackets. Tokens per second are target tokens of training."
    ]
    return Result("length", Report("Quality by source length", machine(), tables, notes), figures)


def _dates(options: Options) -> Corpus:
    def planned(name: str, seed: int) -> Planned:
        updates, minutes = options.updates or UPDATES, options.minutes or MINUTES_ON_DATES
        return Planned(f"dates/{name}-{seed}", settings.on_dates(settings.model(name), updates=updates, minutes=minutes, seed=seed))

    test = settings.corpus(planned(MODELS[0], 1).settings.dates).held_out[HELD_OUT_DATES]
    return Corpus("dates", "Dates", "characters", len, 5, EXACT_MATCH, test, planned)


def _captions(options: Options) -> Corpus:
    assert options.data is not None
    files, test = captions.joined(options.data, options.out / "captions-joined")

    def planned(name: str, seed: int) -> Planned:
        model, minutes = settings.model(name, captions=True), options.minutes or MINUTES_ON_CAPTIONS
        return Planned(f"captions/{name}-{seed}", settings.on_captions(files, model, updates=options.updates, minutes=minutes, seed=seed))

    title = "Captions joined 1 to 5 at a time, English to German"
    return Corpus("captions", title, "words", lambda text: len(text.split()), 10, BLEU_OF_WORDS, test, planned)


def _judged(corpus: Corpus, name: str, seeds: Sequence[int], options: Options, say: Say) -> tuple[dict[str, Any], Series]:
    """A model's row of the table, and its line."""
    planned = [corpus.planned(name, seed) for seed in seeds]
    sources, references = [pair.source for pair in corpus.test], [pair.target for pair in corpus.test]
    made = [translated(one, options.out, "test", sources, say) for one in planned]
    found = [corpus.measure.statistics(one.texts, references) for one in made]
    whole = estimate(corpus.measure, found)
    points: list[Point] = []
    for rows in ranges([corpus.length(source) for source in sources], corpus.width):
        part = estimate(corpus.measure, [statistics[rows] for statistics in found])
        middle = float(np.mean([corpus.length(sources[row]) for row in rows]))
        points.append(Point(middle, part.score, part.low, part.high, part.sentences, part.by_seed))
    row = {
        "model": TITLES[name],
        "score": said(whole),
        "values": whole._asdict(),
        **averaged([outcome(one, options.out) for one in planned]),
        "translated_per_second": len(sources) * len(made) / sum(one.seconds for one in made),
    }
    return row, Series(TITLES[name], points)


def ranges(lengths: Sequence[int], width: int) -> list[list[int]]:
    """The rows of each range of so many lengths, from the shortest; one with few rows joins its neighbour nearer the middle."""
    groups: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        groups.setdefault((length - 1) // width, []).append(row)
    found = [groups[place] for place in sorted(groups)]
    while len(found) > 1 and len(found[0]) < LEAST:
        found[:2] = [sorted(found[0] + found[1])]
    while len(found) > 1 and len(found[-1]) < LEAST:
        found[-2:] = [sorted(found[-2] + found[-1])]
    return found


def said_of(seeds: Sequence[int]) -> str:
    """How often each model was trained, for a title."""
    return "one seed" if len(seeds) == 1 else f"mean of {len(seeds)} seeds"


def said(found: Estimate) -> str:
    """An estimate in a cell: the score, its interval, and each seed's."""
    seeds = f" ({', '.join(f'{score:.1f}' for score in found.by_seed)})" if len(found.by_seed) > 1 else ""
    return f"{found.score:.1f} [{found.low:.1f}, {found.high:.1f}]{seeds}"


def _summary(corpus: Corpus, rows: Sequence[dict[str, Any]]) -> Table:
    columns = [
        Column("model", "model"),
        Column("score", f"{corpus.measure.name} [95 %] (seeds)"),
        Column("parameters", "parameters", ",.0f"),
        Column("updates", "updates", ",.0f"),
        Column("minutes", "minutes", ".1f"),
        Column("computed", "computed in"),
        Column("tokens_per_second", "tokens/s", ",.0f"),
        Column("translated_per_second", "sentences/s translated", ",.0f"),
    ]
    return table(f"{corpus.title}, {len(corpus.test):,} test sentences", columns, rows)


def _by_length(corpus: Corpus, series: Sequence[Series]) -> Table:
    columns = [Column("length", f"source, mean {corpus.unit}", ".0f"), Column("sentences", "sentences")]
    columns += [Column(line.name, line.name) for line in series]
    rows: list[dict[str, Any]] = []
    for points in zip(*(line.points for line in series), strict=True):
        row: dict[str, Any] = {"length": points[0].x, "sentences": str(points[0].sentences)}
        rows.append(row | {line.name: f"{p.y:.1f} [{p.low:.1f}, {p.high:.1f}]" for line, p in zip(series, points, strict=True)})
    return table(f"{corpus.measure.name[:1].upper()}{corpus.measure.name[1:]} by source length", columns, rows)
