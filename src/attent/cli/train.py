"""attent train: from settings to a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attent.cli.output import say
from attent.errors import ArgumentError, UnknownNameError

CORPORA = ("dates",)
RUNS = Path("runs")


def train(
    config: Annotated[Path | None, typer.Option(help="The settings, a TOML file.")] = None,
    corpus: Annotated[str | None, typer.Option(help="dates, with the settings of the demo.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to be; runs/NAME unless given.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a setting; may be repeated.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Train for so long, whatever the settings say.")] = None,
    updates: Annotated[int | None, typer.Option(help="Train for so many updates, whatever the settings say.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the weights and of the order of the pairs.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="How many of the processor's cores to use; measured unless given.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Give up a run folder that is there already.")] = False,
) -> None:
    """Train a model, judge it on what was held out, and leave all of it in a run folder."""
    if (config is None) == (corpus is None):
        raise ArgumentError("say what to train: --config FILE.toml or --corpus dates")
    if corpus is not None and corpus not in CORPORA:
        raise UnknownNameError("corpus", corpus, CORPORA)

    from attent.cli.evaluate import lines
    from attent.cli.overrides import changed
    from attent.config import settings
    from attent.config.recipe import follow

    start = settings.demo() if config is None else settings.read(config)
    chosen = changed(start, changes or [], minutes=minutes, updates=updates, seed=seed, threads=threads)
    out = out or RUNS / (corpus or (config or RUNS).stem)
    say(f"training into {out}")
    results = follow(chosen, out, replace=replace)
    print(f"run: {out}")
    print("\n".join(lines(results)))
