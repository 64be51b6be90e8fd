"""attent compare: models trained on the same data with the same budget and seeds."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.output import say
from attent.errors import ArgumentError, refuse
from attent.setting import Bound, Help

if TYPE_CHECKING:
    from attent.comparison.results import ModelComparison

compare = typer.Typer(help="Train models under equal conditions, and plot the results.", rich_markup_mode=None)

RUNS = "runs/compare-"
Out = Annotated[Path | None, Help(f"Comparison folder; {RUNS}NAME unless given.")]


@dataclass(frozen=True)
class TrainingLimits:
    """Options for the trainings of a comparison."""

    minutes: Annotated[float | None, Bound(0), Help("Maximum minutes per training; the comparison's unless given.")] = (
        None
    )
    updates: Annotated[int | None, Bound(1), Help("Updates per training; the comparison's unless given.")] = None
    seeds: Annotated[int | None, Bound(1), Help("Number of seeds per model: 1, 2 and so on.")] = None
    models: Annotated[str | None, Help("Compare only these models.", "NAME,NAME…")] = None

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments for `attent.comparison.trainings.Options`."""
        if self.minutes == 0:
            raise ArgumentError("--minutes must be > 0, got 0")
        return vars(self) | {"models": _names(self.models)}


@dataclass(frozen=True)
class OwnPairs:
    """Options for pairs to train on instead of dates."""

    train: Annotated[Path | None, Help("Training pairs instead of dates: a .tsv or .jsonl, also .gz.")] = None
    valid: Annotated[Path | None, Help("Validation pairs; split off the training pairs unless given.")] = None


@compare.callback()
def comparisons() -> None:
    """Train models on the same data with the same budget and seeds, evaluate them, and plot the results.

    Each training gets a run folder inside the comparison's folder. Run an interrupted comparison again to continue it;
    finished trainings are not repeated. The table is printed, and saved in the folder with the plots and a JSON file of
    all points. Intervals are 95 %, from resampling the test sentences.
    """


@compare.command()
def length(
    context: typer.Context,
    budget: TrainingLimits,
    out: Out = None,
    data: Annotated[Path | None, Help("Multi30k folder; only dates are compared unless given.")] = None,
) -> None:
    """Quality by source length: RNNs without attention, with Bahdanau's or Luong's, and a Transformer.

    Trains and tests on 1 to 3 joined dates and, with --data, on 1 to 5 joined captions, a sixth of which have more than
    sixty words. Models: none, bahdanau, luong, transformer. Defaults: at most 3 minutes per model on dates and 5 on
    captions, 2 seeds.
    """
    from attent.comparison.length import compare

    _train(context, compare, out, data=data, **budget.options())


@compare.command()
def scores(
    context: typer.Context,
    budget: TrainingLimits,
    pairs: OwnPairs,
    out: Out = None,
    scores: Annotated[str | None, Help("Compare only these scores, by name or module:Class.", "NAME,NAME…")] = None,
) -> None:
    """Every score, in an RNN with Luong's attention and in a Transformer, on dates.

    The RNN also compares local-m and local-p. With --train, the models are trained on your own pairs and evaluated on
    their validation set. Models: rnn, transformer. Defaults: at most 3 minutes per training, 1 seed.
    """
    _compare_parts(context, out, pairs, budget, scores)


@compare.command()
def normalizers(
    context: typer.Context,
    budget: TrainingLimits,
    pairs: OwnPairs,
    out: Out = None,
    normalizers: Annotated[
        str | None, Help("Compare only these normalizers, by name or module:Class.", "NAME,NAME…")
    ] = None,
) -> None:
    """Every normalizer, such as softmax, sparsemax, entmax15 and sigmoid, on dates.

    Each is used in an RNN with Luong's attention and in a Transformer. With --train, the models are trained on your own
    pairs and evaluated on their validation set. Models: rnn, transformer. Defaults: at most 3 minutes per training, 1
    seed.
    """
    _compare_parts(context, out, pairs, budget, normalizers)


def _compare_parts(
    context: typer.Context, out: Path | None, pairs: OwnPairs, budget: TrainingLimits, parts: str | None
) -> None:
    from attent.comparison.parts import compare
    from attent.text.readers import STANDARD_INPUT

    files = {key: str(file) for key, file in vars(pairs).items() if file is not None}
    refuse(
        (pairs.valid is not None and pairs.train is None, "--valid goes with --train"),
        (
            STANDARD_INPUT in files.values(),
            "a comparison reads its pairs for each training, so they cannot come from standard input: use a file",
        ),
    )
    experiment = partial(compare, slot=str(context.info_name))
    _train(context, experiment, out, text=files or None, parts=_names(parts), **budget.options())


def _train(
    context: typer.Context, experiment: Callable[..., ModelComparison], out: Path | None, **options: Any
) -> None:
    from attent.comparison.trainings import Options

    folder = _folder(context, out)
    _write(context, experiment(Options(folder, **options), say=say), folder)


def _folder(context: typer.Context, out: Path | None) -> Path:
    return Path(f"{RUNS}{context.info_name}") if out is None else out


def _write(context: typer.Context, comparison: ModelComparison, folder: Path) -> None:
    # the arguments that attent was called with
    comparison = replace(comparison, report=replace(comparison.report, command=shlex.join(["attent", *context.obj])))
    files = comparison.write(folder)
    print("\n".join(comparison.report.lines()).lstrip())
    say(f"written: {', '.join(map(str, files))}")
    if not any(path.suffix == ".png" for path in files):
        say("no pictures were drawn, since they need matplotlib: in a clone of attent, pip install '.[plot]'")


def _names(text: str | None) -> list[str] | None:
    names = None if text is None else [name.strip() for name in text.split(",") if name.strip()]
    if names == []:
        raise ArgumentError(f"names to compare must be separated by commas, got {text!r}")
    return names
