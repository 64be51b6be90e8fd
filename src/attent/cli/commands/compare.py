"""attent compare: models beside each other, trained on the same data with the same budget and seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.output import say
from attent.errors import ArgumentError

if TYPE_CHECKING:
    from attent.experiments.report import ModelComparison

compare = typer.Typer(help="Train models beside each other, and draw what comes of it.", rich_markup_mode=None)

RUNS = "runs/compare-"
Out = Annotated[Path | None, typer.Option(help=f"The comparison's folder; {RUNS}NAME unless given.")]
Minutes = Annotated[float | None, typer.Option(min=0.0, help="The most that each training takes; the comparison's own unless given.")]
Updates = Annotated[int | None, typer.Option(min=1, help="How many each training has; the comparison's own unless given.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="How often each model is trained, with the seeds 1, 2 and so on.")]
Models = Annotated[str | None, typer.Option(metavar="NAME,NAME…", help="Only these models.")]
Copy = Annotated[Path | None, typer.Option("--copy", help="Put table, figures and JSON into another folder too.")]


@compare.callback()
def comparisons() -> None:
    """Train models on the same data with the same budget and seeds, judge them on the same sentences, and draw it.

    Every training is a run folder within the comparison's. Called again, a comparison goes on where it was interrupted, and what is
    trained is not trained again. The table goes to standard output; it stands in the folder too, with pictures and with JSON that
    holds every point. Intervals are 95 % by resampling the test sentences.
    """


@compare.command()
def length(
    out: Out = None,
    data: Annotated[Path | None, typer.Option(help="Multi30k's folder; without it only dates are compared.")] = None,
    minutes: Minutes = None,
    updates: Updates = None,
    seeds: Seeds = None,
    models: Models = None,
    copy: Copy = None,
) -> None:
    """Quality by source length: the RNN without attention, with Bahdanau's and with Luong's, and the Transformer.

    On dates, and on captions joined 1 to 5 at a time, a sixth of them longer than sixty words, trained and tested so.
    Models: none, bahdanau, luong, transformer. At most 3 minutes a model on dates and 5 on captions, 2 seeds.
    """
    from attent.experiments.compare_length import compare

    _run(compare, "length", copy, out=out, data=data, minutes=minutes, updates=updates, seeds=seeds, models=_names(models))


@compare.command()
def scores(
    out: Out = None,
    minutes: Minutes = None,
    updates: Updates = None,
    seeds: Seeds = None,
    models: Models = None,
    scores: Annotated[str | None, typer.Option(metavar="NAME,NAME…", help="Only these scores; local-m and local-p count as such.")] = None,
    copy: Copy = None,
) -> None:
    """Every score, in an RNN with Luong's attention and in a Transformer, on dates; for the RNN local-m and local-p too.

    Models: rnn, transformer. At most 3 minutes a training, 1 seed.
    """
    from attent.experiments.compare_scores import compare

    _run(compare, "scores", copy, out=out, minutes=minutes, updates=updates, seeds=seeds, models=_names(models), scores=_names(scores))


@compare.command()
def why(out: Out = None, minutes: Minutes = None, updates: Updates = None, seeds: Seeds = None, copy: Copy = None) -> None:
    """Gradients by distance, the time of a step by length, dot and scaled dot by width, and heads.

    The first two are measured on untrained layers; the others are trainings on dates of at most 2 minutes each, 1 seed.
    """
    from attent.experiments.compare_why import compare

    _run(compare, "why", copy, out=out, minutes=minutes, updates=updates, seeds=seeds)


def _run(experiment: Callable[..., ModelComparison], name: str, copy: Path | None, *, out: Path | None, **options: Any) -> None:
    from attent.experiments.trainings import Options

    if options["minutes"] == 0:
        raise ArgumentError("--minutes must be > 0, got 0")
    folder = Path(f"{RUNS}{name}") if out is None else out
    comparison = experiment(Options(folder, **options), say=say)
    files = comparison.write(folder) + ([] if copy is None else comparison.write(copy))
    print("\n".join(comparison.report.lines()).lstrip())
    say(f"written: {', '.join(map(str, files))}")
    if not any(path.suffix == ".png" for path in files):
        say("no pictures: they need matplotlib, pip install 'attent[plot]'")


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
