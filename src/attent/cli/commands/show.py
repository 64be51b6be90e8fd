"""attent show: the attention of a run while it reads a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.inputs import check_utf8
from attent.cli.options import AUTO, Device, RunFolder, TrustCode, device_of, head_number, loaded
from attent.cli.output import say, use_color
from attent.errors import ArgumentError

if TYPE_CHECKING:
    from attent.views.scene import Scene

PAGES = (".html", ".htm")


def show(
    run: RunFolder,
    text: Annotated[str, typer.Argument(help="The text to translate, to fill in or to classify; or a picture to classify.")],
    layer: Annotated[int | None, typer.Option(min=0, help="From 0; the last unless given.")] = None,
    head: Annotated[str, typer.Option(help="From 0; or mean, over all heads; or all, each by itself.")] = "mean",
    kind: Annotated[
        str | None,
        typer.Option(
            help="cross (target looks at source), encoder or decoder (each at itself); of a run that translates, cross unless given."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Draw it into this file too, PNG or SVG; HTML is a page with every layer and head.")
    ] = None,
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """Show a run's attention while it reads a text: in the terminal, and as a picture or a page if asked for."""
    number = None if head == "all" else head_number(head, ", mean or all")
    check_utf8(text)
    from attent.attention.maps.attention_map import LabelledMap
    from attent.views.panel import head_panels_of, kind_of, panel_of
    from attent.views.picture import FORMATS, picture
    from attent.views.terminal import heat_map

    as_page = out is not None and out.suffix.lower() in PAGES
    if out is not None and not as_page and out.suffix.lower() not in FORMATS:
        raise ArgumentError(f"--out must end in {', '.join(FORMATS)} or {PAGES[0]}, got {str(out)!r}")
    scene = _scene(run, loaded(run, device_of(device), trust_code=trust_code), text)
    maps = {
        layer.name: LabelledMap(layer.weights, scene.texts[group.rows].labels, scene.texts[group.columns].labels)  # pyright: ignore[reportArgumentType]
        for group in scene.groups
        for layer in group.layers
    }
    kind = kind or kind_of(next(iter(maps)))
    panels = head_panels_of(maps, kind, layer) if head == "all" else panel_of(maps, kind, layer, number)
    if out is not None and as_page:
        from attent.views.pages.page import page

        page(scene).save(out)
    elif out is not None:
        picture(panels, out)
    print(heat_map(panels, color=use_color()))
    if out is not None:
        say(f"drawn into {out}")


def _scene(run: Path, tool: Any, text: str) -> Scene:
    from attent.data.tokenizer import respell
    from attent.runs.config import read_config
    from attent.views.run_scene import scene_of_example, scene_of_text

    task = read_config(run).task
    if task == "classify":
        if tool.inputs.inputs.kind == "vectors":
            raise ArgumentError("this run reads sequences of vectors: attent classify RUN FILE.npz --row N --attention FILE shows one")
        return scene_of_example(tool, [text], title=text)
    return scene_of_text(tool, text if task == "fill-mask" else respell(text, tool.source_tokenizer))
