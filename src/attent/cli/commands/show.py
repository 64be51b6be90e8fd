"""attent show: show the attention of a run while it reads a text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.options import PretrainedLoading, RunOrModel, head_number
from attent.cli.output import say, use_color
from attent.errors import ArgumentError
from attent.setting import Bound, Help
from attent.text.sources import check_utf8

if TYPE_CHECKING:
    from attent.tasks.loading import StoredRun
    from attent.views.panel import Panel
    from attent.views.scene import Scene

# Endings of --out, here so that they can be checked before slow imports.
PAGES, PICTURES = (".html", ".htm"), (".png", ".svg")


def show(
    run: RunOrModel,
    text: Annotated[str, typer.Argument(help="A text to translate, fill, classify or read; or a picture.")],
    loading: PretrainedLoading,
    layer: Annotated[int | None, Bound(0), Help("Layer to show, from 0; the last unless given.")] = None,
    head: Annotated[str, Help("Head to show, from 0; mean for the mean of all heads; all for each head.")] = "mean",
    kind: Annotated[
        str | None,
        Help(
            "cross (target to source; the default if the model has it), encoder or decoder (self-attention), or self "
            "(a Hugging Face model of one stack)."
        ),
    ] = None,
    translation: Annotated[str | None, Help("Translation to force; the model's own unless given.")] = None,
    out: Annotated[Path | None, Help("Also draw it into this file: PNG, SVG, or HTML for all heads.")] = None,
    without_special: Annotated[bool, Help("Leave out special tokens, such as [CLS]; rows sum to 1 again.")] = False,
) -> None:
    """Show the attention of a run or a Hugging Face model in the terminal while it reads a text."""
    number = None if head == "all" else head_number(head, ", mean or all")
    check_utf8(text)
    check_utf8(translation or "", "--translation")
    as_page = out is not None and out.suffix.lower() in PAGES
    if out is not None and not as_page and out.suffix.lower() not in PICTURES:
        raise ArgumentError(f"--out must end in {', '.join(PICTURES)} or {PAGES[0]}, got {str(out)!r}")
    from attent.views.panel import panels
    from attent.views.picture import picture
    from attent.views.terminal import heat_map

    if (model := loading.pretrained(run)) is None:
        scene = _scene(loading.stored_run(run), text, translation, as_page)
    else:
        scene = model.scene(text, translation)
    if without_special:
        scene = scene.without() if model is None else scene.without(model.special_labels)
    if model is None:
        drawn = _panels(scene, kind, layer, head)
    else:
        drawn = panels(scene, kind or "", -1 if layer is None else layer, head if number is None else number)  # pyright: ignore[reportArgumentType]
    if out is not None and as_page:
        from attent.views.pages.page import page

        page(scene).save(out)
    elif out is not None:
        picture(drawn, out)
    print("\n".join((heat_map(drawn, color=use_color()), *scene.notes)))
    if out is not None:
        say(f"drawn into {out}")


def _panels(scene: Scene, kind: str | None, layer: int | None, head: str) -> Panel | dict[str, Panel]:
    """Return the panels of a run, selected by kind, layer and head."""
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


def _scene(run: StoredRun, text: str, translation: str | None, as_page: bool) -> Scene:
    from attent.tasks.task import options_of

    options = {} if translation is None else {"translation": translation}
    if options.keys() - options_of(run.task.scene):
        raise ArgumentError(f"--translation is for runs that translate, but {run.path} {run.task.does}")
    return run.task.scene(run, text, gradients=as_page, **options)
