"""attent data: corpora to train on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attent.cli.output import say
from attent.errors import ArgumentError, check_known

data = typer.Typer(help="Fetch or make a corpus to train on.", rich_markup_mode=None)


@data.command()
def multi30k(
    out: Annotated[Path, typer.Option(help="The folder to put it in.")],
    source: Annotated[
        Path | None, typer.Option("--from", help="A folder that has the files, instead of downloading them.")
    ] = None,
) -> None:
    """Multi30k: image captions in English, German, French and Czech, raw and tokenized, each file checked."""
    from attent.tasks.translation.multi30k import multi30k as fetch

    files = fetch(out, source, progress=lambda name: say(f"fetching {name}"))
    print(f"{len(files)} files in {out}")


@data.command()
def date_languages(
    out: Annotated[Path, typer.Option(help="The folder to put it in.")],
    locales: Annotated[str, typer.Option(help="demo, full, or Babel's names of locales with commas between.")] = "full",
    texts: Annotated[int, typer.Option(min=1, help="How many to train on.")] = 100_000,
    held_out: Annotated[int, typer.Option(min=1, help="How many to judge by.")] = 5_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same texts.")] = 0,
) -> None:
    """Dates as Unicode CLDR writes them, labelled with their language: train.tsv, valid.tsv and test.tsv."""
    from pydantic import ValidationError

    from attent.tasks.dates.languages import date_languages as make
    from attent.tasks.dates.settings import DatesSettings

    locale_names = locales if locales in ("demo", "full") else [name.strip() for name in locales.split(",")]
    values = {"locales": locale_names, "training_pairs": texts, "held_out_pairs": held_out, "seed": seed}
    try:
        settings = DatesSettings.model_validate(values)
    except ValidationError as error:
        raise ArgumentError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
    corpus = make(settings)
    corpus.write(out)
    for line in corpus.remarks:
        say(line)
    languages = len({label for _, label in corpus.train})
    print(
        f"{len(corpus.train):,} texts in {languages} languages to train on, "
        f"{len(corpus.validation):,} to validate on and {len(corpus.test):,} to judge by, in {out}"
    )


@data.command()
def stories(
    out: Annotated[Path, typer.Option(help="The folder to put it in.")],
    kinds: Annotated[
        str, typer.Option(help="Of questions, with commas between: one, two, three, yes-no, count, list.")
    ] = "all",
    stories: Annotated[int, typer.Option(min=1, help="How many to train on.")] = 20_000,
    held_out: Annotated[int, typer.Option(min=1, help="How many to validate on, and how many to judge by.")] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same stories.")] = 0,
    with_support: Annotated[
        bool,
        typer.Option(
            "--with-support", help="Let the supporting sentences precede each answer of a .tsv, to be learnt with it."
        ),
    ] = False,
) -> None:
    """Small stories with a question each, whose supporting sentences are known.

    Train, valid and test, each .tsv and .jsonl.
    """
    from attent.tasks.stories import KINDS, StoriesSettings
    from attent.tasks.stories import stories as make

    names = list(KINDS) if kinds == "all" else [name.strip() for name in kinds.split(",")]
    for name in names:
        check_known("kind of question", name, KINDS)
    if len(set(names)) != len(names):
        raise ArgumentError(f"--kinds names a kind twice: {kinds}")
    values = {"kinds": names, "training_stories": stories, "held_out_stories": held_out, "seed": seed}
    corpus = make(StoriesSettings.model_validate(values))
    corpus.write(out, with_support=with_support)
    print(
        f"{len(corpus.train):,} stories to train on, {len(corpus.validation):,} to validate on "
        f"and {len(corpus.test):,} to judge by, in {out}"
    )
