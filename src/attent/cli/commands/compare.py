"""attent compare: models beside each other, trained on the same data, budget and seeds, or already."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.options import (
    AUTO,
    BeamSearch,
    Device,
    TargetLanguage,
    TrustCode,
    device_of,
    known_language,
)
from attent.cli.output import say
from attent.errors import ArgumentError, refuse

if TYPE_CHECKING:
    from attent.comparison.results import ModelComparison

compare = typer.Typer(help="Train models under equal conditions, and plot the results.", rich_markup_mode=None)

RUNS = "runs/compare-"
Out = Annotated[Path | None, typer.Option(help=f"The comparison's folder; {RUNS}NAME unless given.")]
Minutes = Annotated[
    float | None, typer.Option(min=0.0, help="The most that each training takes; the comparison's own unless given.")
]
Updates = Annotated[
    int | None, typer.Option(min=1, help="How many each training has; the comparison's own unless given.")
]
Seeds = Annotated[
    int | None, typer.Option(min=1, help="How often each model is trained, with the seeds 1, 2 and so on.")
]
Models = Annotated[str | None, typer.Option(metavar="NAME,NAME…", help="Only these models.")]
Train = Annotated[Path | None, typer.Option(help="Instead of dates, pairs of your own: a .tsv or .jsonl, also .gz.")]
Valid = Annotated[Path | None, typer.Option(help="Pairs to judge on; split off unless given.")]


@compare.callback()
def comparisons() -> None:
    """Train models on the same data with the same budget and seeds, evaluate them on the same sentences, and plot it.

    `runs` compares existing runs.

    Each training is a run folder inside the comparison's folder. An interrupted comparison continues when it is called
    again, and does not repeat finished trainings. The table is printed, and saved in the folder with the plots and a
    JSON file of all points. Intervals are 95 %, by resampling the test sentences.
    """


@compare.command()
def length(
    context: typer.Context,
    out: Out = None,
    data: Annotated[Path | None, typer.Option(help="Multi30k's folder; without it only dates are compared.")] = None,
    minutes: Minutes = None,
    updates: Updates = None,
    seeds: Seeds = None,
    models: Models = None,
) -> None:
    """Quality by source length: the RNN without attention, with Bahdanau's and with Luong's, and the Transformer.

    Trains and tests on 1 to 3 joined dates, or on 1 to 5 joined captions, a sixth of which have more than sixty words.
    Models: none, bahdanau, luong, transformer. At most 3 minutes per model on dates and 5 on captions, 2 seeds.
    """
    from attent.comparison.length import compare

    _train(context, compare, out, data=data, minutes=minutes, updates=updates, seeds=seeds, models=_names(models))


@compare.command()
def scores(
    context: typer.Context,
    out: Out = None,
    minutes: Minutes = None,
    updates: Updates = None,
    seeds: Seeds = None,
    models: Models = None,
    scores: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME…",
            help="Only these scores; local-m and local-p count as such, and module:Class is one's own.",
        ),
    ] = None,
    train: Train = None,
    valid: Valid = None,
) -> None:
    """Every score, in an RNN with Luong's attention and in a Transformer, on dates.

    The RNN also uses local-m and local-p. With --train, uses pairs of your own, evaluated on their validation set.
    Models: rnn, transformer. At most 3 minutes per training, 1 seed.
    """
    limits = {"minutes": minutes, "updates": updates, "seeds": seeds}
    _compare_parts(context, out, train, valid, models=_names(models), parts=_names(scores), **limits)


@compare.command()
def normalizers(
    context: typer.Context,
    out: Out = None,
    minutes: Minutes = None,
    updates: Updates = None,
    seeds: Seeds = None,
    models: Models = None,
    normalizers: Annotated[
        str | None, typer.Option(metavar="NAME,NAME…", help="Only these normalizers; module:Class is one's own.")
    ] = None,
    train: Train = None,
    valid: Valid = None,
) -> None:
    """Every normalizer, such as softmax, sparsemax, entmax15 and sigmoid, on dates.

    Each in an RNN with Luong's attention and in a Transformer. With --train, uses pairs of your own, evaluated on their
    validation set. Models: rnn, transformer. At most 3 minutes per training, 1 seed.
    """
    limits = {"minutes": minutes, "updates": updates, "seeds": seeds}
    _compare_parts(context, out, train, valid, models=_names(models), parts=_names(normalizers), **limits)


@compare.command()
def runs(
    context: typer.Context,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN…", help="Run folders of translators.")],
    source: Annotated[Path, typer.Option(help="Lines to translate, also .gz.")],
    target: Annotated[Path, typer.Option(help="Their references.")],
    search: BeamSearch,
    tokenize: Annotated[
        str | None, typer.Option(help="How sacreBLEU cuts these; by the target's language unless given.")
    ] = None,
    target_language: TargetLanguage = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="BLEU and chrF2 of small letters.")] = False,
    out: Out = None,
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """BLEU and chrF2 of trained translators on the same lines, with a paired bootstrap against the first."""
    from attent.comparison.runs import compare
    from attent.runs.config import read_config
    from attent.tasks.translation.evaluation import bleu_tokenizer

    language = known_language(target_language) or read_config(runs[0]).target_language
    options: dict[str, Any] = {
        "settings": search.settings(),
        "tokenize": tokenize or bleu_tokenizer(language),
        "lowercase": lowercase,
        "device": device_of(device),
        "trust_code": trust_code,
    }
    folder = _folder(context, out)
    _write(context, compare(runs, source, target, folder, **options, say=say), folder)


def _compare_parts(
    context: typer.Context, out: Path | None, train: Path | None, valid: Path | None, **options: Any
) -> None:
    from attent.comparison.parts import compare
    from attent.text.readers import STANDARD_INPUT

    files = {key: str(file) for key, file in (("train", train), ("valid", valid)) if file is not None}
    refuse(
        (valid is not None and train is None, "--valid goes with --train"),
        (
            STANDARD_INPUT in files.values(),
            "standard input can be read once, and a comparison reads the pairs for each training: put them into a file",
        ),
    )
    _train(context, partial(compare, slot=str(context.info_name)), out, text=files or None, **options)


def _train(
    context: typer.Context, experiment: Callable[..., ModelComparison], out: Path | None, **options: Any
) -> None:
    from attent.comparison.trainings import Options

    if options["minutes"] == 0:
        raise ArgumentError("--minutes must be > 0, got 0")
    folder = _folder(context, out)
    _write(context, experiment(Options(folder, **options), say=say), folder)


def _folder(context: typer.Context, out: Path | None) -> Path:
    return Path(f"{RUNS}{context.info_name}") if out is None else out


def _write(context: typer.Context, comparison: ModelComparison, folder: Path) -> None:
    # the words that attent was called with
    comparison = replace(comparison, report=replace(comparison.report, command=shlex.join(["attent", *context.obj])))
    files = comparison.write(folder)
    print("\n".join(comparison.report.lines()).lstrip())
    say(f"written: {', '.join(map(str, files))}")
    if not any(path.suffix == ".png" for path in files):
        say("no pictures: they need matplotlib, pip install 'attent[plot]'")


def _names(text: str | None) -> list[str] | None:
    names = None if text is None else [name.strip() for name in text.split(",") if name.strip()]
    if names == []:
        raise ArgumentError(f"names of what to compare are joined by commas, got {text!r}")
    return names
