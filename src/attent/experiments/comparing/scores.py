"""Every score in the same two models, on dates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attent.attention.scores import SCORES
from attent.data.dates.corpus import HELD_OUT_COMBINATIONS, HELD_OUT_DATES
from attent.errors import ArgumentError
from attent.experiments.benchmarking.machine import machine
from attent.experiments.benchmarking.report import Column, Report
from attent.experiments.comparing import settings
from attent.experiments.comparing.confidence import EXACT_MATCH, RESAMPLES, estimate
from attent.experiments.comparing.length import JUDGING_DATES, said, said_of
from attent.experiments.comparing.results import Figure, Point, Result, Series, table
from attent.experiments.comparing.runs import Planned, Say, averaged, claim, outcome, train, translated
from attent.experiments.comparing.settings import Options, chosen
from attent.training.progress import Progress

UPDATES, MINUTES, SEEDS = 1200, 3.0, 1
MODELS = ("rnn", "transformer")
# Luong's attention that sees a window of the source, here with their score "general".
LOCAL = {"local-m": "m", "local-p": "p"}
KNOWN = (*SCORES, *LOCAL)
TITLES = {"rnn": "RNN, Luong", "transformer": "Transformer"}


def compare(options: Options, *, say: Say = print, progress: Progress | None = None) -> Result:
    """Train an RNN with Luong's attention and a Transformer with each score, and judge them on dates that were held out.

    Raises:
        ArgumentError: a model or a score is unknown, no model has the scores, or the folder of the comparison is another's.
    """
    models, seeds = chosen("model", options.models, MODELS), range(1, (options.seeds or SEEDS) + 1)
    names = chosen("score", options.scores, KNOWN)
    pairs = [(model, score) for model in models for score in names if model == "rnn" or score not in LOCAL]
    if not pairs:
        raise ArgumentError(f"{' and '.join(names)} need a recurrent decoder: --models rnn")
    claim(options.out, "scores")
    planned = {(model, score): [_planned(model, score, seed, options) for seed in seeds] for model, score in pairs}
    everything = [one for several in planned.values() for one in several]
    train(everything, options.out, beside=JUDGING_DATES * len(everything), say=say, progress=progress)
    rows = [_judged(model, score, several, options, say) for (model, score), several in planned.items()]
    series = [Series(TITLES[model], [row["point"] for row in rows if row["of"] == model]) for model in models]
    title = f"Scores on dates never seen: {said_of(seeds)}, with 95 % intervals"
    figure = Figure("scores", title, "score", "exact match, per cent", [one for one in series if one.points], kind="dots")
    shown = [{key: value for key, value in row.items() if key not in ("point", "of")} for row in rows]
    notes = [
        f"Seeds {', '.join(map(str, seeds))}. An interval holds 95 % of {RESAMPLES:,} resamples of the test sentences. The RNN looks "
        "as Luong's does, from the state behind the step; local-m and local-p see 10 characters to either side, of their own place and "
        "of one they predict. Tokens per second are target tokens of training: additive and general have a path of their own there."
    ]
    return Result("scores", Report("Scores", machine(), [table("Exact match on dates, per cent", _columns(), shown)], notes), [figure])


def _planned(model: str, score: str, seed: int, options: Options) -> Planned:
    chosen_model: dict[str, Any] = settings.model("luong" if model == "rnn" else "transformer")
    chosen_model |= {"score": "general", "local": LOCAL[score]} if score in LOCAL else {"score": score}
    updates, minutes = options.updates or UPDATES, options.minutes or MINUTES
    return Planned(f"{model}/{score}-{seed}", settings.on_dates(chosen_model, updates=updates, minutes=minutes, seed=seed))


def _judged(model: str, score: str, planned: Sequence[Planned], options: Options, say: Say) -> dict[str, Any]:
    row: dict[str, Any] = {"of": model, "model": TITLES[model], "score": score}
    held_out = settings.corpus(planned[0].settings.dates).held_out
    for name, key in ((HELD_OUT_DATES, "dates"), (HELD_OUT_COMBINATIONS, "combinations")):
        sources, references = [pair.source for pair in held_out[name]], [pair.target for pair in held_out[name]]
        made = [translated(one, options.out, name, sources, say) for one in planned]
        found = estimate(EXACT_MATCH, [EXACT_MATCH.statistics(one.texts, references) for one in made])
        row |= {key: said(found), f"{key}_values": found._asdict()}
        if key == "dates":
            row["point"] = Point(score, found.score, found.low, found.high, found.sentences, found.by_seed)
    return row | averaged([outcome(one, options.out) for one in planned])


def _columns() -> list[Column]:
    return [
        Column("model", "model"),
        Column("score", "score"),
        Column("dates", "held-out dates [95 %] (seeds)"),
        Column("combinations", "held-out combinations [95 %] (seeds)"),
        Column("parameters", "parameters", ",.0f"),
        Column("updates", "updates", ",.0f"),
        Column("minutes", "minutes", ".1f"),
        Column("computed", "computed in"),
        Column("tokens_per_second", "tokens/s", ",.0f"),
    ]
