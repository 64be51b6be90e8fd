"""attent describe: the model of a run as a tree or a diagram."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from attent.cli.options import RunFolder, TrustCode
from attent.cli.output import say, write
from attent.setting import Help


def describe(
    run: RunFolder,
    out: Annotated[Path | None, Help("Also draw the architecture into this file.", "FILE.svg")] = None,
    trust_code: TrustCode = False,
) -> None:
    """Print a run's model as a tree of modules with equations, shapes and parameter counts."""
    from attent.runs.folder import read
    from attent.views.architecture import architecture, check_svg
    from attent.views.describe import describe as tree

    if out is not None:
        check_svg(out)
    loaded_run = read(run, trust_code=trust_code)
    write(tree(loaded_run.model, f"{run}: {loaded_run.summary}"))
    if out is not None:
        model = loaded_run.model
        architecture(model, out, f"{run.resolve().name}: {type(model).__name__}")
        say(f"drawn into {out}")
