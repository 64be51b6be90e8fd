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


@data.command()
def phrases(
    out: Folder,
    sentences: Annotated[int, Bound(1), Help("Number of training sentences.")] = 20_000,
    held_out: Annotated[int, Bound(2), Help("Number of validation sentences, and of test sentences.")] = 1_000,
    seed: Annotated[int, Bound(0), Help("Seed of the corpus.")] = 0,
) -> None:
    """English sentences with their French translations and their trees.

    Writes train, valid and test files, each as .tsv with English and French, .txt with English, .conllu with trees, and
    -subjects.tsv and -objects.tsv with the main verb and its subject or object, for attent show --find.
    """
    from attent.tasks.phrases.corpus import phrases as make
    from attent.tasks.phrases.corpus import write_phrases

    write_phrases(make(sentences, held_out, seed), out)
    print(f"{sentences:,} sentences to train on, {held_out:,} to validate on and {held_out:,} to test on, in {out}")
