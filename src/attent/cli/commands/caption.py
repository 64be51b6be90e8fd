"""attent caption: pictures put into words."""

import json
from pathlib import Path
from typing import Annotated

import typer

from attent.cli.options import BeamSearch, JsonLines, Loading, RunFolder
from attent.cli.output import write


def caption(
    run: RunFolder,
    loading: Loading,
    search: BeamSearch,
    pictures: Annotated[list[Path], typer.Argument(metavar="PICTURE…", help="Picture files, or folders of them.")],
    as_json: JsonLines = False,
) -> None:
    """Put pictures into words, printing a line for each."""
    settings = search.settings()
    from attent.tasks.caption.captioner import load
    from attent.tasks.classification.pictures import picture_files

    captioner = loading.tool(run, load)
    files = [file for path in pictures for file in (picture_files(path) if path.is_dir() else [path])]
    for file, text in zip(files, captioner.caption(files, settings), strict=True):
        write(json.dumps({"name": str(file), "caption": text}, ensure_ascii=False) if as_json else text)
