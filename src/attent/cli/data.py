"""attent data: corpora to train on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attent.cli.output import say

data = typer.Typer(help="Fetch a corpus to train on.", rich_markup_mode=None)


@data.callback()
def corpora() -> None:
    """Fetch a corpus to train on."""


@data.command()
def multi30k(
    to: Annotated[Path, typer.Option("--to", help="The folder to put it in.")],
    source: Annotated[Path | None, typer.Option("--from", help="A folder that has the files, instead of downloading them.")] = None,
) -> None:
    """Multi30k: image captions in English, German, French and Czech, raw and tokenised, each file checked."""
    from attent.data.multi30k import multi30k as fetch

    files = fetch(to, source, progress=lambda name: say(f"fetching {name}"))
    print(f"{len(files)} files in {to}")
