"""Every score in the same two models, on dates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attent.attention.scores import SCORES
from attent.data.dates.corpus import HELD_OUT_COMBINATIONS, HELD_OUT_DATES
from attent.errors import ArgumentError
from attent.experiments import trainings
from attent.experiments.compare_length import JUDGING_DATES, OUTCOME_COLUMNS, seeds_title
from attent.experiments.confidence import EXACT_MATCH, RESAMPLES, Estimate, estimate
from attent.experiments.figures import Figure, Point, Series
from attent.experiments.machine import machine_info
from attent.experiments.report import Column, ModelComparison, Report, ResultTable
from attent.experiments.trainings import Options, Say, TrainingPlan
from attent.training.progress import Progress

UPDATES, MINUTES, SEEDS = 1200, 3.0, 1
# Luong's attention to a window of the source, here with their score "general".
LOCAL = {"local-m": "m", "local-p": "p"}
ALL_SCORES = (*SCORES, *LOCAL)
TITLES = {"rnn": "RNN, Luong", "transformer": "Transformer"}


def compare(options: Options, *, say: Say = print, progress: Progress | None = None) -> ModelComparison:
    """Train an RNN with Luong's attention and a Transformer with each score, and judge them on held-out dates.

    Raises:
        ArgumentError: a model or a score is unknown, no model has the scores, or the folder of the comparison is another's.
    """
    models, seeds = trainings.select("model", options.models, list(TITLES)), options.seed_range(SEEDS)
    scores = trainings.select("score", options.scores, ALL_SCORES)
    pairs = [(model, score) for model in models for score in scores if model == "rnn" or score not in LOCAL]
    if not pairs:
        raise ArgumentError(f"{' and '.join(scores)} need a recurrent decoder: --models rnn")
    trainings.claim(options.out, "scores")
    plans = {(model, score): [_plan(model, score, seed, options) for seed in seeds] for model, score in pairs}
    all_plans = [plan for by_seed in plans.values() for plan in by_seed]
    trainings.train(all_plans, options.out, judging=JUDGING_DATES * len(all_plans), say=say, progress=progress)
    points: dict[str, list[Point]] = {}
    rows: list[dict[str, Any]] = []
    for (model, score), by_seed in plans.items():
        row, point = _judge(model, score, by_seed, options, say)
        rows.append(row)
        points.setdefault(model, []).append(point)
    title = f"Scores on dates never seen: {seeds_title(seeds)}, with 95 % intervals"
    series = [Series(TITLES[model], line) for model, line in points.items()]
    columns = [
        Column("model", "model"),
        Column("score", "score"),
        Column("dates", "held-out dates [95 %] (seeds)"),
        Column("combinations", "held-out combinations [95 %] (seeds)"),
        *OUTCOME_COLUMNS,
    ]
    notes = [
        f"Seeds {', '.join(map(str, seeds))}. An interval holds 95 % of {RESAMPLES:,} resamples of the test sentences. The RNN looks "
        "as Luong's does, from the state behind the step; local-m and local-p see 10 characters to either side, of their own place and "
        "of one they predict. Tokens per second are target tokens of training: additive and general have a path of their own there."
    ]
    report = Report("Scores", machine_info(), [ResultTable("Exact match on dates, per cent", columns, rows)], notes)
    return ModelComparison("scores", report, [Figure("scores", title, "score", "exact match, per cent", series, kind="dots")])


def _plan(model: str, score: str, seed: int, options: Options) -> TrainingPlan:
    settings = trainings.model_settings("luong" if model == "rnn" else "transformer")
    settings |= {"score": "general", "local": LOCAL[score]} if score in LOCAL else {"score": score}
    return trainings.plan_on_dates(f"{model}/{score}-{seed}", settings, seed, options, updates=UPDATES, minutes=MINUTES)


def _judge(model: str, score: str, plans: Sequence[TrainingPlan], options: Options, say: Say) -> tuple[dict[str, Any], Point]:
    """Return the row of a model with a score, and its point, which is that of held-out dates."""
    row: dict[str, Any] = {"model": TITLES[model], "score": score}
    results = {name: judge_dates(plans, name, options, say) for name in (HELD_OUT_DATES, HELD_OUT_COMBINATIONS)}
    for key, result in zip(("dates", "combinations"), results.values(), strict=True):
        row |= {key: str(result), f"{key}_values": result._asdict()}
    row |= trainings.mean_outcome([trainings.outcome(plan, options.out) for plan in plans])
    return row, Point(score, *results[HELD_OUT_DATES])


def judge_dates(plans: Sequence[TrainingPlan], name: str, options: Options, say: Say) -> Estimate:
    """Return the exact match of the trainings of several seeds on one of the held-out sets of dates."""
    pairs = trainings.dates_corpus(plans[0].settings.dates).held_out[name]
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    translations = [trainings.translate(plan, options.out, name, sources, say) for plan in plans]
    return estimate(EXACT_MATCH, [EXACT_MATCH.statistics(by_seed.texts, references) for by_seed in translations])
