"""attent show: show the attention of a run while it reads a text."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.options import PretrainedLoading, RunOrModel, head_number
from attent.cli.output import say, use_color, write
from attent.errors import ArgumentError, refuse
from attent.setting import Bound, Flag, Help
from attent.text.sources import check_utf8

if TYPE_CHECKING:
    from attent.tasks.loading import StoredRun
    from attent.tasks.pretrained import PretrainedModel
    from attent.tasks.text_generation.continuation import ContinuesText
    from attent.views.panel import Panel
    from attent.views.scene import Scene

# Endings of --out, here so that they can be checked before slow imports.
PAGES, PICTURES = (".html", ".htm"), (".png", ".svg")


def show(
    run: RunOrModel,
    loading: PretrainedLoading,
    text: Annotated[
        str | None, typer.Argument(help="A text to translate, fill, classify or read; or a picture.")
    ] = None,
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
    find: Annotated[str | None, Help("Rank heads by the weight between words, also of a file.", "A:B|FILE")] = None,
    new_tokens: Annotated[
        int | None, Bound(1), Flag("--generate"), Help("Continue the text by up to N tokens, and show it whole.", "N")
    ] = None,
    without_special: Annotated[bool, Help("Leave out special tokens, such as [CLS]; rows sum to 1 again.")] = False,
) -> None:
    """Show the attention of a run or a Hugging Face model in the terminal while it reads a text."""
    number = None if head == "all" else head_number(head, ", mean or all")
    check_utf8(text or "")
    check_utf8(translation or "", "--translation")
    as_page = out is not None and out.suffix.lower() in PAGES
    drawing = layer, kind, translation, out, new_tokens
    refuse(
        (
            out is not None and not as_page and out.suffix.lower() not in PICTURES,
            f"--out must end in {', '.join(PICTURES)} or {PAGES[0]}, got {str(out)!r}",
        ),
        (text is None and find is None, "a text is missing: attent show RUN TEXT"),
        (new_tokens and translation, "give --translation or --generate, not both"),
        (
            find is not None and (*drawing, head, without_special) != (*[None] * len(drawing), "mean", False),
            "--find reads all heads: leave out the options of a drawing, and --translation",
        ),
    )
    model = loading.pretrained(run)
    if model is None:
        stored = loading.stored_run(run)
        scene_of = partial(_scene, stored, translation=translation, as_page=as_page)
    else:
        stored, scene_of = None, partial(model.scene, target=translation)
    if new_tokens is not None:
        scene_of = partial(_generator(model, stored).continued_scene, count=new_tokens)
    if find is not None:
        from attent.alignment.word_pairs import ranking_lines

        write("\n".join(ranking_lines(scene_of, find, text)))
    elif text is not None:
        scene, choice = scene_of(text), "all" if head == "all" else "mean" if number is None else number
        if without_special:
            scene = scene.without() if model is None else scene.without(model.special_labels)
        from attent.views.panel import Panel, panels, panels_of

        if stored is None:
            _draw(scene, panels(scene, kind or "", -1 if layer is None else layer, choice), out)
        else:
            drawn = panels_of(scene, kind, layer, choice)
            if _has_whole_words(stored.tool):
                drawn = (
                    _plain(drawn)
                    if isinstance(drawn, Panel)
                    else {name: _plain(panel) for name, panel in drawn.items()}
                )
            _draw(scene, drawn, out)


def _draw(scene: Scene, drawn: Panel | dict[str, Panel], out: Path | None) -> None:
    """Show panels of a scene in the terminal, and draw them, or the scene as a page, into a file."""
    from attent.views.picture import draw_scene
    from attent.views.terminal import heat_map

    if out is not None and out.suffix.lower() in PAGES:
        from attent.views.pages.page import page

        page(scene).save(out)
    elif out is not None:
        draw_scene(scene, drawn, out)
    print("\n".join((heat_map(drawn, color=use_color()), *scene.notes)))
    if out is not None:
        say(f"drawn into {out}")


def _generator(model: PretrainedModel | None, run: StoredRun | None) -> ContinuesText:
    """Return the language model whose text is continued.

    Raises:
        ArgumentError: it is another model.
    """
    from attent.tasks.text_generation.continuation import ContinuesText

    tool: Any = model if run is None else run.tool
    if not isinstance(tool, ContinuesText):
        name = type(tool.model).__name__
        raise ArgumentError(f"--generate is for a language model, and {name} does not generate text")
    return tool


def _scene(run: StoredRun, text: str, translation: str | None, as_page: bool) -> Scene:
    from attent.tasks.task import options_of

    options = {} if translation is None else {"translation": translation}
    if options.keys() - options_of(run.task.scene):
        raise ArgumentError(f"--translation is for runs that translate, but {run.path} {run.task.does}")
    scene, unknown = run.task.scene(run, text, gradients=as_page, **options), run.task.unknown_words(run, text)
    note = f"Unknown to this run: {', '.join(map(repr, unknown))}."
    return replace(scene, notes=(*scene.notes, note)) if unknown else scene


def _has_whole_words(tool: Any) -> bool:
    """Return whether every token of a run is a word or a sign."""
    from attent.text.tokenizer import WordTokenizer

    names = "tokenizer", "source_tokenizer", "target_tokenizer"
    tokenizers = [tokenizer for name in names if (tokenizer := getattr(tool, name, None)) is not None]
    return bool(tokenizers) and all(isinstance(tokenizer, WordTokenizer) for tokenizer in tokenizers)


def _plain(panel: Panel) -> Panel:
    """Return a panel with labels without the space before each word."""
    rows, columns = (tuple(label.removeprefix(" ") or label for label in side) for side in (panel.rows, panel.columns))
    return replace(panel, rows=rows, columns=columns)
