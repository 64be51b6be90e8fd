"""attent describe: the model of a run as a tree or a diagram."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from attent.cli.options import TrustCode
from attent.cli.output import say, write
from attent.errors import refuse
from attent.setting import Help


def describe(
    run: Annotated[Path | None, typer.Argument(help="The run folder; symbols are drawn without one.")] = None,
    part: Annotated[Literal["attention", "heads", "layer", "model"], Help("Part that --out draws.")] = "model",
    out: Annotated[Path | None, Help("Also draw the architecture, or a part, into this file.", "FILE.svg")] = None,
    trust_code: TrustCode = False,
) -> None:
    """Print a run's model as a tree of modules with equations, shapes and parameter counts."""
    from attent.runs.folder import read
    from attent.views.architecture import check_svg
    from attent.views.blocks import draw
    from attent.views.describe import describe as tree

    if out is not None:
        check_svg(out)
    refuse(
        (run is None and part == "model", "name a run folder, or a --part to draw with symbols: attent describe RUN"),
        (out is None and part != "model", f"--part {part} needs --out FILE.svg"),
    )
    loaded_run = None if run is None else read(run, trust_code=trust_code)
    if loaded_run is not None:
        write(tree(loaded_run.model, f"{run}: {loaded_run.summary}"))
    if out is not None:
        draw(part, out, loaded_run and loaded_run.model, run.resolve().name if run else "")
        say(f"drawn into {out}")
