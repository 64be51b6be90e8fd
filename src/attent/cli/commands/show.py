"""attent show: the attention of a run while it reads a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.inputs import check_utf8
from attent.cli.options import AUTO, Device, Download, RunOrModel, TrustCode, device_of, head_number, loaded, pretrained
from attent.cli.output import say, use_color
from attent.errors import ArgumentError

if TYPE_CHECKING:
    from attent.views.panel import Panel
    from attent.views.scene import Scene

# Endings of --out, known before slow imports.
PAGES, PICTURES = (".html", ".htm"), (".png", ".svg")


def show(
    run: RunOrModel,
    text: Annotated[
        str, typer.Argument(help="The text to translate, to fill in, to classify or to read; or a picture.")
    ],
    layer: Annotated[int | None, typer.Option(min=0, help="From 0; the last unless given.")] = None,
    head: Annotated[str, typer.Option(help="From 0; or mean, over all heads; or all, each by itself.")] = "mean",
    kind: Annotated[
        str | None,
        typer.Option(
            help="cross (target looks at source), encoder or decoder (each at itself), or self, of a Hugging Face "
            "model that is one of these alone; cross unless given, where there is one."
        ),
    ] = None,
    translation: Annotated[
        str | None, typer.Option(help="What is to be written; unless given, a model that translates writes by itself.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Draw it into this file too, PNG or SVG; HTML is a page with every layer and head."),
    ] = None,
    download: Download = False,
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """Show the attention of a run, or of a Hugging Face model, while it reads a text.

    In the terminal, and as a picture or a page.
    """
    number = None if head == "all" else head_number(head, ", mean or all")
    check_utf8(text)
    check_utf8(translation or "", "--translation")
    as_page = out is not None and out.suffix.lower() in PAGES
    if out is not None and not as_page and out.suffix.lower() not in PICTURES:
        raise ArgumentError(f"--out must end in {', '.join(PICTURES)} or {PAGES[0]}, got {str(out)!r}")
    from attent.views.panel import panels
    from attent.views.picture import picture
    from attent.views.terminal import heat_map

    torch_device = device_of(device)
    model = pretrained(run, torch_device, download=download)
    if model is None:
        scene = _scene(run, loaded(run, torch_device, trust_code=trust_code), text, translation, as_page)
        drawn = _panels(scene, kind, layer, head)
    else:
        scene = model.scene(text, translation)
        drawn = panels(
            scene,
            kind or "",
            -1 if layer is None else layer,
            "all" if head == "all" else "mean" if number is None else number,
        )
    if out is not None and as_page:
        from attent.views.pages.page import page

        page(scene).save(out)
    elif out is not None:
        picture(drawn, out)
    print(heat_map(drawn, color=use_color()))
    if out is not None:
        say(f"drawn into {out}")


def _panels(scene: Scene, kind: str | None, layer: int | None, head: str) -> Panel | dict[str, Panel]:
    """Return the panels of a run, whose modules' names tell their kind."""
    from attent.attention.maps.attention_map import LabelledMap
    from attent.views.panel import head_panels_of, kind_of, panel_of

    maps = {
        layer.name: LabelledMap(layer.weights, scene.texts[group.rows].labels, scene.texts[group.columns].labels)  # pyright: ignore[reportArgumentType]
        for group in scene.groups
        for layer in group.layers
    }
    kind = kind or kind_of(next(iter(maps)))
    return (
        head_panels_of(maps, kind, layer)
        if head == "all"
        else panel_of(maps, kind, layer, head_number(head, ", mean or all"))
    )


def _scene(run: Path, tool: Any, text: str, translation: str | None, as_page: bool) -> Scene:
    from attent.runs.config import DOES, read_config
    from attent.tasks.run_scene import scene_of_example, scene_of_text
    from attent.text.tokenizer import respell
    from attent.views.build_scene import build_scene

    task = read_config(run).task
    if translation is not None and task != "translate":
        raise ArgumentError(f"--translation is for runs that translate, and {run} {DOES[task][0]}")
    if task == "classify":
        if tool.inputs.inputs.kind == "vectors":
            raise ArgumentError(
                "this run reads sequences of vectors: attent classify RUN FILE.npz --row N --attention FILE shows one"
            )
        return scene_of_example(tool, [text], title=text, gradients=as_page)
    if task != "translate":
        return scene_of_text(tool, text, gradients=as_page)
    text = respell(text, tool.source_tokenizer)
    return build_scene(tool.map(text, translation, gradients=as_page), title=text)
