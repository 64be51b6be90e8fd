"""attent train: from settings to a run folder."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from attent.cli.output import say
from attent.errors import ArgumentError, UnknownNameError

CORPORA = ("dates",)
RUNS = Path("runs")


class TrainCommand(TyperCommand):
    """The command below, whose --resume may stand without a run folder, which --out then names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        bare = [word == "--resume" and after.startswith("-") for word, after in pairwise([*args, "-"])]
        return super().parse_args(ctx, ["--resume=" if alone else word for word, alone in zip(args, bare, strict=True)])


def train(
    config: Annotated[Path | None, typer.Option(help="The settings, a TOML file.")] = None,
    corpus: Annotated[str | None, typer.Option(help="dates, with the settings of the demo.")] = None,
    train: Annotated[str | None, typer.Option(help="Pairs of your own: a .tsv or .jsonl, also .gz, or - for standard input.")] = None,
    train_source: Annotated[str | None, typer.Option(help="Instead of --train: sources, one a line.")] = None,
    train_target: Annotated[str | None, typer.Option(help="Their targets, line for line.")] = None,
    valid: Annotated[str | None, typer.Option(help="Pairs to validate on; split off unless given.")] = None,
    valid_source: Annotated[str | None, typer.Option(help="Instead of --valid: sources, one a line.")] = None,
    valid_target: Annotated[str | None, typer.Option(help="Their targets, line for line.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder in which the files of [text] lie.")] = None,
    preset: Annotated[str | None, typer.Option(help="Of the model, with --train and no --config: tiny, small or base.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to be; runs/NAME unless given.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a setting; may be repeated.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Train for so long, whatever the settings say.")] = None,
    updates: Annotated[
        int | None, typer.Option("--updates", "--steps", help="Train for so many updates, whatever the settings say.")
    ] = None,
    patience: Annotated[int | None, typer.Option(help="Stop after so many validations that find nothing better.")] = None,
    save_every: Annotated[int | None, typer.Option(help="Updates between checkpoints, beside those of validation.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the weights and of the order of the pairs.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="How many of the processor's cores to use; measured unless given.")] = None,
    sharded: Annotated[
        bool | None, typer.Option("--sharded/--whole", help="Whether the processes of torchrun divide weights and moments among them.")
    ] = None,
    tensorboard: Annotated[bool | None, typer.Option("--tensorboard", help="Write the log for TensorBoard too.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Give up a run folder that is there already.")] = False,
    init_from: Annotated[Path | None, typer.Option(help="A run folder whose weights and tokenizers to start from.")] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="[RUN]", help="Go on with a run folder, instead of a new one; that of --out unless named.")
    ] = None,
) -> None:
    """Train a model, judge it on what was held out, and leave all of it in a run folder."""
    named = {
        "train": train,
        "train_source": train_source,
        "train_target": train_target,
        "valid": valid,
        "valid_source": valid_source,
        "valid_target": valid_target,
    }
    files = {name: file for name, file in named.items() if file is not None}
    alone = bool(files) and config is None
    if (config is not None) + (corpus is not None) + (resume is not None) + alone != 1:
        raise ArgumentError("say what to train: one of --train FILE, --config FILE.toml, --corpus dates and --resume RUN")
    if preset is not None and not alone:
        raise ArgumentError("--preset goes with --train and no --config; else --set model.preset=NAME")
    if corpus is not None and corpus not in CORPORA:
        raise UnknownNameError("corpus", corpus, CORPORA)
    if resume is not None:
        if not resume and out is None:
            raise ArgumentError("--resume takes a run folder: --resume RUN, or --out RUN --resume")
        fixed = {
            "--out": out if resume else None,
            "--data": data,
            "--set": changes,
            "--seed": seed,
            "--replace": replace or None,
            "--init-from": init_from,
        }
        if wrong := [name for name, value in fixed.items() if value not in (None, [])]:
            raise ArgumentError(f"a run that goes on keeps its settings: --resume takes no {wrong[0]}")
        limits = {"minutes": minutes, "updates": updates, "patience": patience}
        others = {"threads": threads, "save_every": save_every, "sharded": sharded, "tensorboard": tensorboard}
        _go_on(Path(resume or out or ""), {name: value for name, value in (limits | others).items() if value is not None})
        return

    from attent.cli.evaluate import lines
    from attent.cli.overrides import changed
    from attent.config import settings
    from attent.config.recipe import follow
    from attent.training.parallel import speaks

    start = settings.demo() if corpus is not None else None if config is None else settings.read(config)
    if files:
        from attent.cli.texts import settings_of

        start = settings_of(files, start, preset, data)
    assert start is not None
    chosen = changed(
        start,
        changes or [],
        minutes=minutes,
        updates=updates,
        seed=seed,
        threads=threads,
        patience=patience,
        save_every=save_every,
        sharded=sharded,
        tensorboard=tensorboard,
    )
    if data is not None:
        from attent.cli.texts import within

        chosen = within(chosen, data)
    out = out or RUNS / (corpus or (config.stem if config else Path(train or train_source or "").name.split(".")[0] or "text"))
    if speaks():
        say(f"training into {out}")
    results = follow(chosen, out, replace=replace, init_from=init_from)
    if speaks():
        print(f"run: {out}")
        print("\n".join(lines(results)))


def _go_on(run: Path, changes: dict[str, Any]) -> None:
    from attent.cli.evaluate import lines
    from attent.config import recipe
    from attent.training.parallel import speaks

    if speaks():
        say(f"going on with {run}")
    results = recipe.resume(run, changes)
    if speaks():
        print(f"run: {run}")
        print("\n".join(lines(results)))
