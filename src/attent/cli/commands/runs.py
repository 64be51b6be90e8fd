"""attent runs: list the runs of a folder, and check their files."""

import json
from pathlib import Path
from typing import Annotated

import typer

from attent.cli.options import Json
from attent.cli.output import one_line, write
from attent.errors import ArgumentError, AttentError


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder of run folders.")] = Path("runs"), as_json: Json = False
) -> None:
    """List the runs of a folder by name, and check that each can be loaded and that its files match their SHA-256.

    A line has the name, the task, the languages, the type of the weights, the size on disk in MiB, and the state:
    finished, unfinished, or the problem. The exit code is 2 if there is a problem.
    """
    from attent.runs.config import CONFIG
    from attent.tasks.loading import StoredRun

    if not folder.is_dir():
        raise ArgumentError(f"{folder}: there is no such folder")
    is_complete = True
    for path in sorted(file.parent for file in folder.glob(f"*/{CONFIG}")):
        row = {"run": path.name, "task": "", "languages": "", "dtype": "", "MiB": 0.0, "state": ""}
        try:
            stored = StoredRun(path)
            row |= {"task": stored.config.task, "languages": stored.config.languages, "dtype": stored.config.dtype}
            row["MiB"] = round(sum(file.stat().st_size for file in path.iterdir()) / 2**20, 1)
            assert stored.tool
            row["state"] = stored.config.state
        except AttentError as error:
            is_complete, row["state"] = False, one_line(error)
        write(
            json.dumps(row, ensure_ascii=False) if as_json else "  ".join(filter(None, map(str, row.values()))),
            flush=True,
        )
    raise typer.Exit(0 if is_complete else 2)
