"""attent describe: the model of a run as a tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def describe(run: Annotated[Path, typer.Argument(help="The run folder.")]) -> None:
    """Draw a run's model as a tree of parts, with their equations, shapes and parameter counts."""
    from rich.console import Console

    from attent.runs.folder import read
    from attent.views.describe import describe as tree

    found = read(run)
    sizes = [f"{tokenizer.size} {name}" for name, tokenizer in found.tokenizers.items()]
    title = ", ".join([f"{run}: {type(found.model).__name__}", *([f"{' and '.join(sizes)} tokens"] if sizes else [])])
    Console(highlight=False).print(tree(found.model, title))
