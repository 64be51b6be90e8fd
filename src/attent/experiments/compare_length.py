"""Quality of translations by the length of the source: a fixed vector against attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attent.experiments import corpora, trainings
from attent.experiments.confidence import BLEU_OF_WORDS, EXACT_MATCH, RESAMPLES, Measure, estimate
from attent.experiments.figures import Figure, Point, Series
from attent.experiments.machine import machine_info
from attent.experiments.report import Column, ModelComparison, Report, ResultTable
from attent.experiments.trainings import MODELS, TITLES, Options, Say, TrainingPlan
from attent.tasks.dates import DatesSettings
from attent.text.text import Pair
from attent.training.progress import Progress

UPDATES, MINUTES_ON_DATES, MINUTES_ON_CAPTIONS, SEEDS = 1000, 3.0, 5.0, 2
# Minutes to judge a model.
JUDGING_DATES, JUDGING_CAPTIONS = 0.25, 1.5
# The fewest sentences of a range of lengths.
MIN_SENTENCES = 20
# Columns of `trainings.mean_outcome`.
OUTCOME_COLUMNS = (
    Column("parameters", "parameters", ",.0f"),
    Column("updates", "updates", ",.0f"),
    Column("minutes", "minutes", ".1f"),
    Column("computed", "computed in"),
    Column("tokens_per_second", "tokens/s", ",.0f"),
)


@dataclass(frozen=True)
class LengthCorpus:
    """A corpus on which models are trained and judged by length.

    Args:
        name: of its folder and its figure.
        title: of its figure.
        unit: of a source's length.
        length: of a source.
        width: of a range of lengths that is judged together.
        measure: the score.
        test: the pairs to judge by.
        plan: a model's name and a seed → its training.
    """

    name: str
    title: str
    unit: str
    length: Callable[[str], int]
    width: int
    measure: Measure
    test: Sequence[Pair]
    plan: Callable[[str, int], TrainingPlan]


def compare(options: Options, *, say: Say = print, progress: Progress | None = None) -> ModelComparison:
    """Train each model on joined dates, and joined captions if their folder is given; judge by source length.

    The figure is that of Bahdanau et al. (2015), figure 2, arXiv 1409.0473: BLEU against the length of the source, for
    models trained on the same sentences.

    Raises:
        ArgumentError: a model is unknown, or the folder of captions or of the comparison is another's.
    """
    models, seeds = trainings.select("model", options.models, MODELS), options.seed_range(SEEDS)
    trainings.claim(options.out, "length")
    test_corpora = [_dates(options)] + ([] if options.data is None else [_captions(options)])
    plans = [corpus.plan(name, seed) for corpus in test_corpora for name in models for seed in seeds]
    judging = len(models) * len(seeds) * (JUDGING_DATES + (0.0 if options.data is None else JUDGING_CAPTIONS))
    trainings.train(plans, options.out, judging=judging, say=say, progress=progress)
    tables: list[ResultTable] = []
    figures: list[Figure] = []
    for corpus in test_corpora:
        rows, series = zip(*(_judge(corpus, name, seeds, options, say) for name in models), strict=True)
        tables += [_summary_table(corpus, rows), _length_table(corpus, series)]
        figures.append(
            Figure(
                f"length-{corpus.name}",
                f"{corpus.title}: {seeds_title(seeds)}, with 95 % intervals",
                f"source length, {corpus.unit}",
                f"{corpus.measure.name}, 0 to 100",
                series,
            )
        )
    notes = [
        f"Seeds {', '.join(map(str, seeds))}. An interval holds 95 % of {RESAMPLES:,} resamples of the test "
        "sentences; the scores of several seeds stand in brackets. Tokens per second are target tokens of training."
    ]
    return ModelComparison("length", Report("Quality by source length", machine_info(), tables, notes), figures)


def _dates(options: Options) -> LengthCorpus:
    files, test = corpora.join_dates(
        DatesSettings.model_validate(trainings.DATES_TO_JOIN), options.out / "dates-joined"
    )

    def plan(name: str, seed: int) -> TrainingPlan:
        model, limits = trainings.model_settings(name), {"updates": UPDATES, "minutes": MINUTES_ON_DATES}
        return trainings.plan_on_dates(f"dates/{name}-{seed}", model, seed, options, files, **limits)

    return LengthCorpus("dates", "Dates joined 1 to 3 at a time", "characters", len, 10, EXACT_MATCH, test, plan)


def _captions(options: Options) -> LengthCorpus:
    assert options.data is not None
    files, test = corpora.join_captions(options.data, options.out / "captions-joined")

    def plan(name: str, seed: int) -> TrainingPlan:
        limits = {"updates": options.updates, "minutes": options.minutes or MINUTES_ON_CAPTIONS}
        # in a model this wide Luong's weights would be all but hard from the first updates on: docs/compare.md
        scale = {"scaled_score": True} if name == "luong" else {}
        model = trainings.model_settings(name, captions=True) | scale
        settings = trainings.settings_on_captions(files, model, **limits, seed=seed)
        return TrainingPlan(f"captions/{name}-{seed}", settings)

    return LengthCorpus(
        "captions",
        "Captions joined 1 to 5 at a time, English to German",
        "words",
        lambda text: len(text.split()),
        10,
        BLEU_OF_WORDS,
        test,
        plan,
    )


def _judge(
    corpus: LengthCorpus, name: str, seeds: Sequence[int], options: Options, say: Say
) -> tuple[dict[str, Any], Series]:
    """Return a model's row of the table, and its line."""
    plans = [corpus.plan(name, seed) for seed in seeds]
    sources, references = [pair.source for pair in corpus.test], [pair.target for pair in corpus.test]
    translations = [trainings.translate(plan, options.out, "test", sources, say) for plan in plans]
    statistics = [corpus.measure.statistics(by_seed.texts, references) for by_seed in translations]
    score = estimate(corpus.measure, statistics)
    points: list[Point] = []
    for rows in length_ranges([corpus.length(source) for source in sources], corpus.width):
        part = estimate(corpus.measure, [by_seed[rows] for by_seed in statistics])
        mean_length = float(np.mean([corpus.length(sources[row]) for row in rows]))
        points.append(Point(mean_length, *part))
    row = {
        "model": TITLES[name],
        "score": str(score),
        "values": score._asdict(),
        **trainings.mean_outcome([trainings.outcome(plan, options.out) for plan in plans]),
        "translated_per_second": len(sources) * len(translations) / sum(by_seed.seconds for by_seed in translations),
    }
    return row, Series(TITLES[name], points)


def length_ranges(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Return the rows of each range of lengths, from the shortest.

    A range of few rows joins its neighbor nearer the middle.
    """
    ranges: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        ranges.setdefault((length - 1) // width, []).append(row)
    groups = [ranges[number] for number in sorted(ranges)]
    while len(groups) > 1 and len(groups[0]) < MIN_SENTENCES:
        groups[:2] = [sorted(groups[0] + groups[1])]
    while len(groups) > 1 and len(groups[-1]) < MIN_SENTENCES:
        groups[-2:] = [sorted(groups[-2] + groups[-1])]
    return groups


def seeds_title(seeds: Sequence[int]) -> str:
    """Return how often each model was trained, for a title."""
    return "one seed" if len(seeds) == 1 else f"mean of {len(seeds)} seeds"


def _summary_table(corpus: LengthCorpus, rows: Sequence[dict[str, Any]]) -> ResultTable:
    columns = [
        Column("model", "model"),
        Column("score", f"{corpus.measure.name} [95 %] (seeds)"),
        *OUTCOME_COLUMNS,
        Column("translated_per_second", "sentences/s translated", ",.0f"),
    ]
    return ResultTable(f"{corpus.title}, {len(corpus.test):,} test sentences", columns, rows)


def _length_table(corpus: LengthCorpus, series: Sequence[Series]) -> ResultTable:
    columns = [Column("length", f"source, mean {corpus.unit}", ".0f"), Column("sentences", "sentences")]
    columns += [Column(line.name, line.name) for line in series]
    rows = [
        {"length": points[0].x, "sentences": str(points[0].sentences)}
        | {line.name: f"{p.y:.1f} [{p.low:.1f}, {p.high:.1f}]" for line, p in zip(series, points, strict=True)}
        for points in zip(*(line.points for line in series), strict=True)
    ]
    return ResultTable(f"{corpus.measure.name[:1].upper()}{corpus.measure.name[1:]} by source length", columns, rows)
