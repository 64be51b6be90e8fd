"""attent data: corpora to train on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attent.cli.output import say
from attent.errors import ArgumentError, check_known
from attent.setting import Bound, Flag, Help

Folder = Annotated[Path, Help("Output folder.")]

data = typer.Typer(help="Download or generate a corpus to train on.", rich_markup_mode=None)


@data.command()
def multi30k(
    out: Folder,
    source: Annotated[Path | None, Flag("--from"), Help("Folder to copy the files from, without a download.")] = None,
) -> None:
    """Multi30k: image captions in English, German, French and Czech, raw and tokenized, with verified checksums."""
    from attent.tasks.translation.multi30k import multi30k as fetch

    files = fetch(out, source, progress=lambda name: say(f"fetching {name}"))
    print(f"{len(files)} files in {out}")


@data.command()
def date_languages(
    out: Folder,
    locales: Annotated[str, Help("demo, full, or Babel locale names separated by commas.")] = "full",
    texts: Annotated[int, Bound(1), Help("Number of training texts.")] = 100_000,
    held_out: Annotated[int, Bound(1), Help("Number of test texts.")] = 5_000,
    seed: Annotated[int, Bound(0), Help("Seed of the corpus.")] = 0,
) -> None:
    """Dates in the formats of Unicode CLDR, labeled with their language: train.tsv, valid.tsv and test.tsv."""
    from pydantic import ValidationError

    from attent.tasks.dates.corpus import DatesSettings
    from attent.tasks.dates.languages import date_languages as make

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
        f"{len(corpus.validation):,} to validate on and {len(corpus.test):,} to test on, in {out}"
    )


@data.command()
def canvases(
    out: Folder,
    pictures: Annotated[int, Bound(1), Help("Number of pictures to train on.")] = 8_000,
    held_out: Annotated[int, Bound(1), Help("Number of pictures of each held-out part.")] = 500,
    seed: Annotated[int, Bound(0), Help("Seed of the canvases.")] = 0,
) -> None:
    """Canvases of scikit-learn's digits with captions: train.tsv, valid.tsv, test.tsv and combinations.tsv.

    The images of digits in valid and test are not in train. In combinations, digits are together that are so nowhere
    else.
    """
    from attent.tasks.caption.canvases import canvases as draw
    from attent.tasks.caption.canvases import write_canvases

    parts = draw(pictures, held_out, seed)
    write_canvases(out, parts)
    print(f"{', '.join(f'{len(drawn):,} pictures of {part}' for part, drawn in parts.items())}, in {out}")


@data.command()
def stories(
    out: Folder,
    kinds: Annotated[str, Help("Question kinds, joined by commas: one, two, three, yes-no, count, list.")] = "all",
    stories: Annotated[int, Bound(1), Help("Number of training stories.")] = 20_000,
    held_out: Annotated[int, Bound(1), Help("Number of validation stories, and of test stories.")] = 1_000,
    seed: Annotated[int, Bound(0), Help("Seed of the corpus.")] = 0,
    with_support: Annotated[bool, Help("Write supporting sentences before each answer in the .tsv files.")] = False,
) -> None:
    """Short stories, each with a question and its supporting sentences.

    Writes train, valid and test files, each as .tsv and .jsonl.
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
        f"and {len(corpus.test):,} to test on, in {out}"
    )
