"""Comparison of all scores, or all normalizers, in the same two models, on dates or on your own pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from _report import Column, Report, ResultTable, machine_info

from attent import registry
from attent.attention import choices
from attent.attention.normalizers import NORMALIZERS
from attent.attention.scores import SCORES
from attent.errors import ArgumentError
from attent.tasks.dates.corpus import HELD_OUT_COMBINATIONS, HELD_OUT_DATES
from attent.tasks.settings import RunSettings
from attent.tasks.translation.task import MAX_TRANSLATED
from attent.text.corpus import pair_corpus
from attent.text.settings import TextSettings
from attent.text.text import Pair
from attent.training.progress import Progress
from comparison import trainings
from comparison.length import OUTCOME_COLUMNS, mean_outcome, seeds_title
from comparison.results import (
    BLEU,
    EXACT_MATCH,
    RESAMPLES,
    Estimate,
    Figure,
    Measure,
    ModelComparison,
    Point,
    Series,
    estimate,
)
from comparison.trainings import Options, Say, TrainingPlan

UPDATES, MINUTES, SEEDS = 1200, 3.0, 1
# Luong's local attention, to a window of the source, here with the score "general".
LOCAL = {"local-m": "m", "local-p": "p"}
ALL_SCORES = (*SCORES, *LOCAL)
# Normalizers that can be built from their name alone: top_k needs a k.
ALL_NORMALIZERS = tuple(name for name in NORMALIZERS if choices.missing("normalizer", name) is None)
TITLES = {"rnn": "RNN, Luong", "transformer": "Transformer"}


class Slot(NamedTuple):
    """A slot of the formula whose parts are compared.

    Args:
        kind: kind of its parts.
        setting: the model setting that names the part.
        parts: names of the parts.
        note: note on the parts for the report.
    """

    kind: str
    setting: str
    parts: Sequence[str]
    note: str


SLOTS = {
    "scores": Slot(
        "score",
        "score",
        ALL_SCORES,
        "The RNN attends as Luong's does, from the state after the step; local-m and local-p see 10 tokens on either "
        "side of the current position and of a predicted one. Tokens per second are target tokens during training, "
        "where additive and general have fast paths.",
    ),
    "normalizers": Slot(
        "normalizer",
        "normalizer",
        ALL_NORMALIZERS,
        "The RNN attends as Luong's does, with the score general. The Transformer's score is scaled_dot, and all its "
        "attention uses the normalizer. Tokens per second are target tokens during training, where softmax has fused "
        "paths.",
    ),
}


class ScoreColumn(NamedTuple):
    """A column of the table: a measure of translations on a named set of pairs."""

    key: str
    title: str
    measure: Measure
    set_name: str
    pairs: Sequence[Pair]


def compare(
    options: Options, slot: str = "scores", *, say: Say = print, progress: Progress | None = None
) -> ModelComparison:
    """Train an RNN with Luong's attention and a Transformer with each part of a slot, and evaluate them.

    The test data are held-out dates, or the validation set of your own pairs.

    Args:
        options: options of the comparison; `text` names your own pairs.
        slot: "scores" or "normalizers".
        say: gets a line for each step.
        progress: shows each training to a person.

    Raises:
        ArgumentError: a model or a part is unknown, no model has the parts, or the folder holds another comparison.
        DataError: the files of pairs cannot be read.
    """
    parts, seeds = SLOTS[slot], options.seed_range(SEEDS)
    models = trainings.select("model", options.models, list(TITLES))
    names = _part_names(parts, options.parts)
    cells = [(model, name) for model in models for name in names if model == "rnn" or name not in LOCAL]
    if not cells:
        raise ArgumentError(f"{' and '.join(names)} need a recurrent decoder: --models rnn")
    plans = {(model, name): [_plan(parts, model, name, seed, options) for seed in seeds] for model, name in cells}
    scores = _score_columns(plans[cells[0]][0].settings)
    trainings.claim(options.out, slot, options.text)
    all_plans = [plan for by_seed in plans.values() for plan in by_seed]
    trainings.train(all_plans, options.out, say=say, progress=progress)
    points: dict[str, list[Point]] = {}
    rows: list[dict[str, Any]] = []
    for (model, name), by_seed in plans.items():
        row, point = _judge(scores, by_seed, options, say)
        rows.append({"model": TITLES[model], parts.kind: name} | row)
        points.setdefault(model, []).append(Point(name, *point))
    return _report(slot, scores, rows, points, seeds, options)


def _part_names(slot: Slot, names: Sequence[str] | None) -> list[str]:
    """Return the names of the parts to compare, custom ones last; raise if one is unknown or needs more than a name."""
    own = [name for name in names or () if registry.is_imported(name)]
    for name in own:
        choices.score_for(name, 8, 8, 1) if slot.kind == "score" else choices.normalizer(name)
    builtin = [name for name in names or () if name not in own]
    return ([] if own and not builtin else trainings.select(slot.kind, builtin, slot.parts)) + list(dict.fromkeys(own))


def _plan(slot: Slot, model: str, name: str, seed: int, options: Options) -> TrainingPlan:
    settings = trainings.model_settings("luong" if model == "rnn" else "transformer", captions=bool(options.text))
    settings |= {"score": "general", "local": LOCAL[name]} if name in LOCAL else {slot.setting: name}
    # some systems do not allow colons in folder names
    run = f"{model}/{name.replace(':', '.')}-{seed}"
    if options.text:
        limits = {"updates": options.updates or UPDATES, "minutes": options.minutes or MINUTES}
        return TrainingPlan(run, trainings.settings_on_text(options.text, settings, **limits, seed=seed))
    return trainings.plan_on_dates(run, settings, seed, options, updates=UPDATES, minutes=MINUTES)


def _score_columns(settings: RunSettings) -> list[ScoreColumn]:
    """Return the columns of scores; the first one is plotted."""
    if settings.text is not None:
        pairs = _validation_pairs(settings.text)
        return [
            ScoreColumn(key, measure.name, measure, "validation", pairs)
            for key, measure in (("bleu", BLEU), ("exact", EXACT_MATCH))
        ]
    held_out, sets = (
        trainings.dates_corpus(settings.dates).held_out,
        {"dates": HELD_OUT_DATES, "combinations": HELD_OUT_COMBINATIONS},
    )
    return [ScoreColumn(key, name, EXACT_MATCH, name, held_out[name]) for key, name in sets.items()]


def _validation_pairs(settings: TextSettings) -> list[Pair]:
    """Return at most 1,000 evenly spaced pairs of the validation set of these files.

    Raises:
        DataError: a file cannot be read, or contains no pair.
    """
    pairs = pair_corpus(settings).validation
    count = min(len(pairs), MAX_TRANSLATED)
    return [pairs[number * len(pairs) // count] for number in range(count)]


def _judge(
    scores: Sequence[ScoreColumn], plans: Sequence[TrainingPlan], options: Options, say: Say
) -> tuple[dict[str, Any], Estimate]:
    """Return the row of a model with a part, and its first score."""
    results = {score.key: judge(plans, score.pairs, score.set_name, options, say, score.measure) for score in scores}
    row = {key: str(result) for key, result in results.items()} | {
        f"{key}_values": result._asdict() for key, result in results.items()
    }
    outcomes = mean_outcome([trainings.outcome(plan, options.out) for plan in plans])
    return row | outcomes, results[scores[0].key]


def judge(
    plans: Sequence[TrainingPlan],
    pairs: Sequence[Pair],
    name: str,
    options: Options,
    say: Say,
    measure: Measure = EXACT_MATCH,
) -> Estimate:
    """Return the score of one model's trainings, one per seed, on a set of pairs."""
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    translations = [trainings.translate(plan, options.out, name, sources, say) for plan in plans]
    return estimate(measure, [measure.statistics(by_seed.texts, references) for by_seed in translations])


def _report(
    name: str,
    scores: Sequence[ScoreColumn],
    rows: list[dict[str, Any]],
    points: dict[str, list[Point]],
    seeds: range,
    options: Options,
) -> ModelComparison:
    slot, title, first = SLOTS[name], name.capitalize(), scores[0]
    columns = [Column("model", "model"), Column(slot.kind, slot.kind)]
    columns += [Column(score.key, f"{score.title} [95 %] (seeds)") for score in scores]
    note = (
        f"Seeds {', '.join(map(str, seeds))}. An interval holds 95 % of {RESAMPLES:,} resamples of the test sentences. "
        f"{slot.note}"
    )
    if options.text:
        table_title = f"Evaluated on {len(first.pairs):,} validation pairs"
        figure_title, unit = f"{title} on validation pairs", first.title
    else:
        table_title, figure_title, unit = (
            "Exact match on dates, percent",
            f"{title} on unseen dates",
            "exact match, percent",
        )
    report = Report(title, machine_info(), [ResultTable(table_title, [*columns, *OUTCOME_COLUMNS], rows)], [note])
    series = [Series(TITLES[model], line) for model, line in points.items()]
    figure = Figure(
        name, f"{figure_title}: {seeds_title(seeds)}, with 95 % intervals", slot.kind, unit, series, kind="dots"
    )
    return ModelComparison(name, report, [figure])
