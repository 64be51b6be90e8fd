"""attent describe: the model of a run as a tree."""

from __future__ import annotations

from attent.cli.options import RunFolder, TrustCode

# Columns, more than any line needs.
UNWRAPPED = 10_000


def describe(run: RunFolder, trust_code: TrustCode = False) -> None:
    """Draw a run's model as a tree of parts, with their equations, shapes and parameter counts."""
    from rich.console import Console

    from attent.runs.folder import read
    from attent.views.describe import describe as tree

    loaded_run = read(run, trust_code=trust_code)
    sizes = [f"{tokenizer.size} {name}" for name, tokenizer in loaded_run.tokenizers.items()]
    title = ", ".join([f"{run}: {type(loaded_run.model).__name__}", *([f"{' and '.join(sizes)} tokens"] if sizes else [])])
    console = Console(highlight=False)
    if not console.is_terminal:
        # a file or a pipe has no width
        console.width = UNWRAPPED
    console.print(tree(loaded_run.model, title))
