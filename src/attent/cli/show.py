"""attent show: what a run looked at while it translated a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attent.cli.output import colours, say
from attent.errors import ArgumentError


def show(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    text: Annotated[str, typer.Argument(help="The text to translate.")],
    layer: Annotated[int | None, typer.Option(help="From 0; the last unless given.")] = None,
    head: Annotated[str, typer.Option(help="From 0; or mean, over all heads; or all, each by itself.")] = "mean",
    kind: Annotated[str, typer.Option(help="cross (target looks at source), encoder or decoder (each at itself).")] = "cross",
    out: Annotated[Path | None, typer.Option(help="Draw it into this file too, PNG or SVG.")] = None,
) -> None:
    """Show a run's attention while it translates a text: in the terminal, and as a picture if asked for."""
    from attent.decoding.translator import load
    from attent.views.panel import heads_of, panel_of
    from attent.views.picture import picture
    from attent.views.terminal import heat_map

    maps = load(run).map(text)
    panels = heads_of(maps, kind, layer) if head == "all" else panel_of(maps, kind, layer, _number(head))
    if out is not None:
        picture(panels, out)
    print(heat_map(panels, colour=colours()))
    if out is not None:
        say(f"drawn into {out}")


def _number(head: str) -> int | None:
    if head == "mean":
        return None
    if not head.isdecimal():
        raise ArgumentError(f"--head must be a number from 0, mean or all, got {head!r}")
    return int(head)
