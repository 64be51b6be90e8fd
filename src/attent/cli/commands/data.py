"""attent data: corpora to train on."""

from pathlib import Path
from typing import Annotated

import typer

from attent.cli.output import say
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
