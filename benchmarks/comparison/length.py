"""Translation quality by source length: a fixed context vector compared with attention."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _report import Column, Report, ResultTable, machine_info

from attent.errors import ArgumentError
from attent.runs.durable import write_text
from attent.tasks.dates import DatesSettings, dates
from attent.tasks.dates.corpus import HELD_OUT_DATES
from attent.text.readers import read_parallel
from attent.text.text import Pair, ReadReport
from attent.training.progress import Progress
from comparison import trainings
from comparison.results import (
    BLEU_OF_WORDS,
    EXACT_MATCH,
    RESAMPLES,
    Figure,
    Measure,
    ModelComparison,
    Point,
    Series,
    estimate,
)
from comparison.trainings import MODELS, TITLES, Options, Say, TrainingPlan

UPDATES, MINUTES_ON_DATES, MINUTES_ON_CAPTIONS, SEEDS = 1000, 3.0, 5.0, 2
# The minimum number of sentences in a range of lengths.
MIN_SENTENCES = 20
# Columns of `mean_outcome`.
OUTCOME_COLUMNS = (
    Column("parameters", "parameters", ",.0f"),
    Column("updates", "updates", ",.0f"),
    Column("minutes", "minutes", ".1f"),
    Column("computed", "computed in"),
    Column("tokens_per_second", "tokens/s", ",.0f"),
)

# The parts of Multi30k, English to German, lowercased and tokenized, in the folder written by `attent data multi30k`.
MULTI30K = {
    part: tuple(f"tok/{name}.lc.norm.tok.{language}.gz" for language in ("en", "de"))
    for part, name in {"train": "train", "valid": "val", "test": "test_2016_flickr"}.items()
}
# The maximum number of captions, and of dates, in a joined pair.
MAX_JOINED, MAX_JOINED_DATES = 5, 3
# Passes over the training pairs, each of which joins them in a new order.
PASSES = 3


@dataclass(frozen=True)
class LengthCorpus:
    """A corpus to train models on and to evaluate them by source length.

    Args:
        name: name of its folder and its figure.
        title: title of its figure.
        unit: unit of a source's length.
        length: function that returns the length of a source.
        width: width of a range of lengths whose sentences are evaluated together.
        measure: the score.
        test: test pairs.
        plan: function from a model's name and a seed to its training.
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
    """Train each model on joined dates, and on joined captions if their folder is given; evaluate by source length.

    Reproduces figure 2 of Bahdanau et al. (2015), arXiv 1409.0473: BLEU against source length, for models trained on
    the same sentences.

    Raises:
        ArgumentError: a model is unknown, the captions are missing, or the folder holds another comparison.
    """
    models, seeds = trainings.select("model", options.models, MODELS), options.seed_range(SEEDS)
    trainings.claim(options.out, "length")
    test_corpora = [_dates(options)] + ([] if options.data is None else [_captions(options)])
    plans = [corpus.plan(name, seed) for corpus in test_corpora for name in models for seed in seeds]
    trainings.train(plans, options.out, say=say, progress=progress)
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
        "sentences; scores of single seeds are in parentheses. Tokens per second are target tokens during training."
    ]
    return ModelComparison("length", Report("Quality by source length", machine_info(), tables, notes), figures)


def _dates(options: Options) -> LengthCorpus:
    files, test = join_dates(DatesSettings.model_validate(trainings.DATES_TO_JOIN), options.out / "dates-joined")

    def plan(name: str, seed: int) -> TrainingPlan:
        model, limits = trainings.model_settings(name), {"updates": UPDATES, "minutes": MINUTES_ON_DATES}
        return trainings.plan_on_dates(f"dates/{name}-{seed}", model, seed, options, files, **limits)

    return LengthCorpus("dates", "Dates joined 1 to 3 at a time", "characters", len, 10, EXACT_MATCH, test, plan)


def _captions(options: Options) -> LengthCorpus:
    assert options.data is not None
    files, test = join_captions(options.data, options.out / "captions-joined")

    def plan(name: str, seed: int) -> TrainingPlan:
        limits = {"updates": options.updates, "minutes": options.minutes or MINUTES_ON_CAPTIONS}
        # in a model this wide, Luong's weights would be almost hard from the first updates: docs/compare.md
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
    """Return a model's row in the table and its line in the figure."""
    plans = [corpus.plan(name, seed) for seed in seeds]
    sources, references = [pair.source for pair in corpus.test], [pair.target for pair in corpus.test]
    translations = [trainings.translate(plan, options.out, "test", sources, say) for plan in plans]
    sentences = [corpus.measure.statistics(by_seed.texts, references) for by_seed in translations]
    score = estimate(corpus.measure, sentences)
    points: list[Point] = []
    for rows in length_ranges([corpus.length(source) for source in sources], corpus.width):
        part = estimate(corpus.measure, [by_seed[rows] for by_seed in sentences])
        mean_length = float(np.mean([corpus.length(sources[row]) for row in rows]))
        points.append(Point(mean_length, *part))
    row = {
        "model": TITLES[name],
        "score": str(score),
        "values": score._asdict(),
        **mean_outcome([trainings.outcome(plan, options.out) for plan in plans]),
        "translated_per_second": len(sources) * len(translations) / sum(by_seed.seconds for by_seed in translations),
    }
    return row, Series(TITLES[name], points)


def length_ranges(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Return the row numbers for each range of lengths, shortest first.

    A range with too few rows at either end is merged with its neighbor.
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


def mean_outcome(outcomes: Sequence[trainings.Outcome]) -> dict[str, Any]:
    """Return the mean outcome of several seeds as values for a table row.

    Args:
        outcomes: one outcome per seed, at least one.

    Returns:
        parameters, equal for all seeds; the means of updates, minutes and tokens_per_second (target tokens); and
        computed, each combination of precision and threads that occurred.
    """
    computed = {
        f"{outcome.precision}, {outcome.threads} thread{'s' if outcome.threads > 1 else ''}" for outcome in outcomes
    }
    return {
        "parameters": outcomes[0].parameters,
        "updates": statistics.fmean(outcome.updates for outcome in outcomes),
        "minutes": statistics.fmean(outcome.seconds for outcome in outcomes) / 60,
        "computed": "; ".join(sorted(computed)),
        "tokens_per_second": statistics.fmean(outcome.tokens_per_second for outcome in outcomes),
    }


def seeds_title(seeds: Sequence[int]) -> str:
    """Return the number of seeds as words for a title."""
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


def join_captions(folder: Path, out: Path) -> tuple[dict[str, str], list[Pair]]:
    """Write training and validation pairs of 1 to 5 joined captions; see `join`.

    Args:
        folder: Multi30k's folder.
        out: folder for train.tsv and valid.tsv.

    Returns:
        The paths of both files, by their keys in the settings of a text, and the test pairs.

    Raises:
        ArgumentError: `folder` does not have the files of Multi30k, or `out` contains other pairs.
    """
    missing = [name for names in MULTI30K.values() for name in names if not (folder / name).is_file()]
    if missing:
        raise ArgumentError(f"{folder} does not contain Multi30k's {missing[0]}: attent data multi30k --out {folder}")
    return join(
        {part: read_captions(*(folder / name for name in names)) for part, names in MULTI30K.items()}, MAX_JOINED, out
    )


def join_dates(settings: DatesSettings, out: Path) -> tuple[dict[str, str], list[Pair]]:
    """Write training and validation pairs of 1 to 3 joined dates; see `join`.

    Args:
        settings: settings of the dates.
        out: folder for train.tsv and valid.tsv.

    Returns:
        The paths of both files, by their keys in the settings of a text, and the test pairs.

    Raises:
        ArgumentError: `out` contains other pairs.
    """
    corpus = dates(settings)
    return join(
        {"train": corpus.train, "valid": corpus.validation, "test": corpus.held_out[HELD_OUT_DATES]},
        MAX_JOINED_DATES,
        out,
    )


def join(parts: Mapping[str, Sequence[Pair]], maximum: int, out: Path) -> tuple[dict[str, str], list[Pair]]:
    """Write training and validation pairs, each of which joins a few short pairs.

    For training, all short pairs are joined in a random order, a random number at a time, in several passes. Validation
    and test have equally many joined pairs of each number, and use each short pair at most once. Random numbers are the
    same in every call.

    Args:
        parts: short pairs of train, valid and test.
        maximum: maximum number of short pairs to join.
        out: folder for train.tsv and valid.tsv.

    Returns:
        The paths of both files, by their keys in the settings of a text, and the test pairs.

    Raises:
        ArgumentError: `out` contains other pairs.
    """
    out.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for part, pairs in {
        "train": _training_pairs(parts["train"], maximum),
        "valid": _balanced_pairs(parts["valid"], maximum),
    }.items():
        path, text = out / f"{part}.tsv", "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
        if not path.is_file():
            write_text(path, text)
        elif path.read_bytes() != text.encode():
            raise ArgumentError(f"{path} contains other pairs: name another folder with --out")
        files[part] = str(path.resolve())
    return files, _balanced_pairs(parts["test"], maximum)


def read_captions(source: Path, target: Path) -> list[Pair]:
    """Return the pairs of lines of two files."""
    return [pair for _, pair in read_parallel(source, target, ReadReport(str(source)))]


def _training_pairs(pairs: Sequence[Pair], maximum: int) -> list[Pair]:
    rng, joined = random.Random(0), list[Pair]()
    for _ in range(PASSES):
        order = rng.sample(pairs, len(pairs))
        while order:
            number = rng.randint(1, maximum)
            joined.append(_join(order[:number]))
            del order[:number]
    return joined


def _balanced_pairs(pairs: Sequence[Pair], maximum: int) -> list[Pair]:
    """Return equally many joined pairs of each number, as many as there are pairs for.

    Each short pair is used at most once, so that the joined pairs are independent.
    """
    order, numbers = random.Random(1).sample(pairs, len(pairs)), range(1, maximum + 1)
    stack = iter(order)
    return [
        _join([next(stack) for _ in range(number)]) for number in numbers for _ in range(len(order) // sum(numbers))
    ]


def _join(pairs: Sequence[Pair]) -> Pair:
    return Pair(" ".join(pair.source for pair in pairs), " ".join(pair.target for pair in pairs))
