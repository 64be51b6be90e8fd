"""attent compare: models beside each other, trained on the same data, budget and seeds, or already."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.options import (
    AUTO,
    Device,
    LengthForm,
    TargetLanguage,
    TrustCode,
    device_of,
    known_language,
    search_settings,
)
from attent.cli.output import say
from attent.errors import ArgumentError

if TYPE_CHECKING:
    from attent.experiments.report import ModelComparison

compare = typer.Typer(help="Train models beside each other, and draw what comes of it.", rich_markup_mode=None)

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
# Pairs of one's own, as `attent train` names them.
Train = Annotated[str | None, typer.Option(help="Instead of dates, pairs of your own: a .tsv or .jsonl, also .gz.")]
TrainSource = Annotated[str | None, typer.Option(help="Instead of --train: sources, one a line.")]
TrainTarget = Annotated[str | None, typer.Option(help="Their targets, line for line.")]
Valid = Annotated[str | None, typer.Option(help="Pairs to judge on; split off unless given.")]
ValidSource = Annotated[str | None, typer.Option(help="Instead of --valid: sources, one a line.")]
ValidTarget = Annotated[str | None, typer.Option(help="Their targets, line for line.")]
Data = Annotated[Path | None, typer.Option(help="The folder in which these files lie.")]
Copy = Annotated[Path | None, typer.Option("--copy", help="Put table, figures and JSON into another folder too.")]


@compare.callback()
def comparisons() -> None:
    """Train models on the same data with the same budget and seeds, judge them on the same sentences, and draw it.

    `runs` compares what is trained already.

    Every training is a run folder within the comparison's. Called again, a comparison goes on where it was interrupted,
    and what is trained is not trained again. The table goes to standard output; it stands in the folder too, with
    pictures and with JSON that holds every point. Intervals are 95 % by resampling the test sentences.
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
    copy: Copy = None,
) -> None:
    """Quality by source length: the RNN without attention, with Bahdanau's and with Luong's, and the Transformer.

    On dates joined 1 to 3 at a time, and on captions joined 1 to 5, a sixth of them longer than sixty words, trained
    and tested so. Models: none, bahdanau, luong, transformer. At most 3 minutes a model on dates and 5 on captions, 2
    seeds.
    """
    from attent.experiments.compare_length import compare

    _run(
        context,
        compare,
        "length",
        copy,
        out=out,
        data=data,
        minutes=minutes,
        updates=updates,
        seeds=seeds,
        models=_names(models),
    )


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
    train_source: TrainSource = None,
    train_target: TrainTarget = None,
    valid: Valid = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    data: Data = None,
    copy: Copy = None,
) -> None:
    """Every score, in an RNN with Luong's attention and in a Transformer, on dates.

    The RNN also has local-m and local-p. With --train on pairs of your own, judged on their validation. Models: rnn,
    transformer. At most 3 minutes a training, 1 seed.
    """
    from attent.experiments.compare_parts import compare

    text = _files(data, (train, train_source, train_target, valid, valid_source, valid_target))
    options = {"models": _names(models), "scores": _names(scores), "text": text}
    _run(context, compare, "scores", copy, out=out, minutes=minutes, updates=updates, seeds=seeds, **options)


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
    train_source: TrainSource = None,
    train_target: TrainTarget = None,
    valid: Valid = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    data: Data = None,
    copy: Copy = None,
) -> None:
    """Every normalizer, such as softmax, sparsemax, entmax15 and sigmoid, on dates.

    Each is in an RNN with Luong's attention and in a Transformer. With --train on pairs of your own, judged on their
    validation. Models: rnn, transformer. At most 3 minutes a training, 1 seed.
    """
    from attent.experiments.compare_parts import compare

    text = _files(data, (train, train_source, train_target, valid, valid_source, valid_target))
    options = {"models": _names(models), "normalizers": _names(normalizers), "text": text}
    normalizers_compared = partial(compare, slot="normalizers")
    _run(
        context,
        normalizers_compared,
        "normalizers",
        copy,
        out=out,
        minutes=minutes,
        updates=updates,
        seeds=seeds,
        **options,
    )


@compare.command()
def runs(
    context: typer.Context,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN…", help="Run folders of translators.")],
    source: Annotated[Path, typer.Option(help="Lines to translate, also .gz.")],
    target: Annotated[Path, typer.Option(help="Their references.")],
    tokenize: Annotated[
        str | None, typer.Option(help="How sacreBLEU cuts these; by the target's language unless given.")
    ] = None,
    target_language: TargetLanguage = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="BLEU and chrF2 of small letters.")] = False,
    beam: Annotated[int | None, typer.Option(help="As for translate.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="As for translate.")] = None,
    length_form: LengthForm = None,
    out: Out = None,
    copy: Copy = None,
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """BLEU and chrF2 of trained translators on the same lines, with a paired bootstrap against the first."""
    settings = search_settings(beam=beam, length_penalty=length_penalty, length_form=length_form)
    from attent.experiments.compare_runs import compare
    from attent.runs.config import read_config
    from attent.tasks.translation.metrics import bleu_tokenizer

    language = known_language(target_language) or read_config(runs[0]).target_language
    tokenize = tokenize or bleu_tokenizer(language)
    folder = Path(f"{RUNS}runs") if out is None else out
    options: dict[str, Any] = {
        "settings": settings,
        "tokenize": tokenize,
        "lowercase": lowercase,
        "device": device_of(device),
    }
    _write(context, compare(runs, source, target, folder, **options, trust_code=trust_code, say=say), folder, copy)


@compare.command()
def why(
    context: typer.Context,
    out: Out = None,
    minutes: Minutes = None,
    updates: Updates = None,
    seeds: Seeds = None,
    copy: Copy = None,
) -> None:
    """Gradients by distance, the time of a step by length, dot and scaled dot by width, and heads.

    The first two are measured on untrained layers; the others are trainings on dates of at most 2 minutes each, 1 seed.
    """
    from attent.experiments.compare_why import compare

    _run(context, compare, "why", copy, out=out, minutes=minutes, updates=updates, seeds=seeds)


def _run(
    context: typer.Context,
    experiment: Callable[..., ModelComparison],
    name: str,
    copy: Path | None,
    *,
    out: Path | None,
    **options: Any,
) -> None:
    from attent.experiments.trainings import Options

    if options["minutes"] == 0:
        raise ArgumentError("--minutes must be > 0, got 0")
    folder = Path(f"{RUNS}{name}") if out is None else out
    _write(context, experiment(Options(folder, **options), say=say), folder, copy)


def _write(context: typer.Context, comparison: ModelComparison, folder: Path, copy: Path | None) -> None:
    # the words that attent was called with
    comparison = replace(comparison, report=replace(comparison.report, command=shlex.join(["attent", *context.obj])))
    files = comparison.write(folder) + ([] if copy is None else comparison.write(copy))
    print("\n".join(comparison.report.lines()).lstrip())
    say(f"written: {', '.join(map(str, files))}")
    if not any(path.suffix == ".png" for path in files):
        say("no pictures: they need matplotlib, pip install 'attent[plot]'")


def _files(folder: Path | None, files: Sequence[str | None]) -> dict[str, str] | None:
    """Return the files of pairs by their key in [text], in a folder if one is given; None if there are none."""
    from attent.cli.settings import resolve_files
    from attent.text.readers import STANDARD_INPUT
    from attent.text.settings import FILES

    # replay, the last of them, is for runs that are adapted
    named = {key: file for key, file in zip(FILES[:-1], files, strict=True) if file is not None}
    if folder is not None and not named:
        raise ArgumentError("--data is the folder of --train, or of --train-source and --train-target")
    if STANDARD_INPUT in named.values():
        raise ArgumentError(
            "standard input can be read once, and a comparison reads the pairs for each training: put them into a file"
        )
    return (named if folder is None else resolve_files(named, folder)) or None


def _names(text: str | None) -> list[str] | None:
    names = None if text is None else [name.strip() for name in text.split(",") if name.strip()]
    if names == []:
        raise ArgumentError(f"names of what to compare are joined by commas, got {text!r}")
    return names
