"""attent walk: every number of the formula."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent import registry
from attent.cli.inputs import check_utf8
from attent.cli.options import AUTO, NUMBER, Device, TrustCode, device_of, loaded
from attent.cli.output import say, write
from attent.errors import ArgumentError
from attent.mask_text import check_mask

if TYPE_CHECKING:
    from attent.views.render_walk import Walk

ENDINGS = (".html", ".htm")


def walk(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN] [TEXT]", help="A text; or a run folder and a text.")
    ] = None,
    score: Annotated[
        str | None, typer.Option(help="Of a text alone: any score, by name; scaled_dot unless given.")
    ] = None,
    scale: Annotated[
        bool, typer.Option("--scale/--no-scale", help="Of a text alone: whether to divide by √Dk.")
    ] = True,
    heads: Annotated[
        int | None, typer.Option(min=1, max=64, help="Of a text alone: how many heads; 1 unless given.")
    ] = None,
    normalizer: Annotated[
        str | None, typer.Option(help="Of a text alone: any normalizer, by name; softmax unless given.")
    ] = None,
    mask: Annotated[
        str | None,
        typer.Option(
            help="Of a text alone: causal, window:2, prefix:3, documents:0,0,1, or several joined by & and |."
        ),
    ] = None,
    position: Annotated[
        str | None,
        typer.Option(help="Of a text alone: sinusoidal, learned, rotary, alibi or relative_bias; none unless given."),
    ] = None,
    cross: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Of a text alone: a second text, which the first attends to.")
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of a text alone: word vectors (GloVe, word2vec, fastText) as its words."),
    ] = None,
    width: Annotated[
        int | None, typer.Option(min=1, max=64, help="Of a text alone: how many numbers a word has; 4 unless given.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="Of a text alone: of the random matrices; 0 unless given.")
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            help="whole: on through the layer, and of a run to the likeliest words. Of a run also its number from 0, "
            "or whole:0."
        ),
    ] = None,
    head: Annotated[int | None, typer.Option(min=0, help="Of a run: the head, from 0; the first unless given.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="Of a run: encoder, decoder or cross; the first that it has unless given.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="Write every number into a page too; point at one to see what it is made of."
        ),
    ] = None,
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """Walk through attention: every step with its equation, its shape and its numbers, named by the words.

    Of a text alone the numbers are made up; of a run they are those of the trained model.
    """
    whole, number = _layer(layer)
    text_options = {
        "score": score,
        "heads": heads,
        "normalizer": normalizer,
        "mask": mask,
        "seed": seed,
        "width": width,
    }
    text_options |= {"position": position, "cross": cross, "vectors": vectors}
    run_options = {"layer": number, "head": head, "kind": kind}
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise ArgumentError(f"--out must end in {ENDINGS[0]}, got {str(out)!r}")
    arguments = words or ["The cat sat on the mat"]
    if len(arguments) > 2:
        raise ArgumentError(
            f"walk takes a text, or a run folder and a text, got {len(arguments)} arguments: put the text in quotes"
        )
    check_utf8(arguments[-1])
    check_utf8(cross or "")
    if len(arguments) == 2:
        if not Path(arguments[0]).exists():
            raise ArgumentError(f"there is no run folder {arguments[0]}; a text of several words goes in quotes")
        refused = text_options | {"no-scale": None if scale else True}
        _refuse(refused, "is for a text without a run; a run has been trained with its own")
        run = loaded(arguments[0], device_of(device), trust_code=trust_code)
        from attent.views.walk_run import walk_run

        _show(walk_run(run, arguments[1], whole=whole, **_without_none(run_options)), out)
        return
    if (Path(arguments[0]) / "config.json").is_file():
        raise ArgumentError(
            f"{arguments[0]} is a run folder, of which a walk needs a text too: attent walk {arguments[0]} TEXT"
        )
    _refuse(run_options, "needs a run: attent walk RUN TEXT")
    for part, name in (("score", score), ("normalizer", normalizer), ("position", position)):
        registry.check(part, name)
    if mask is not None:
        check_mask(mask)
    # a score or a position is built for the widths, whatever parameters it needs
    _check_complete("normalizer", normalizer)
    from attent.views.walk import walk as walk_text

    if vectors is not None:
        from attent.text import word_vectors

        text_words = f"{arguments[0]} {cross or ''}".split()
        # vectors often have lower case alone
        forms = {form for word in text_words for form in (word, word.lower())}
        text_options["vectors"] = word_vectors.read(vectors, forms)

    _show(walk_text(arguments[0], scale=scale, whole=whole, **_without_none(text_options)), out)


def _show(walk: Walk, out: Path | None) -> None:
    """Write a walk, and its page into a file if one is named."""
    write(walk)
    if out is not None:
        from attent.views.pages.walk_page import walk_page

        say(f"written into {walk_page(walk).save(out)}")


def _layer(text: str | None) -> tuple[bool, int | None]:
    """Return whether a walk goes through the whole layer, and the layer's number if one is given.

    Raises:
        ArgumentError: this is neither a number nor "whole".
    """
    match = re.fullmatch(rf"(whole)?(?:(?(1):)({NUMBER.pattern}))?", text or "")
    if match is None or text == "":
        raise ArgumentError(f"--layer must be a number from 0, whole, or whole:0, got {text!r}")
    return match[1] is not None, None if match[2] is None else int(match[2])


def _check_complete(kind: str, name: str | None) -> None:
    """Raise if a part needs more than its name."""
    from attent.attention import choices

    missing = None if name is None else choices.missing(kind, name)
    if missing is not None:
        example, complete_names = missing
        raise ArgumentError(
            f"--{kind} {name} needs values that a command cannot give; "
            f"it takes {', '.join(complete_names)}; or in Python: attent.walk(TEXT, {example})"
        )


def _without_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse(options: dict[str, Any], reason: str) -> None:
    for name in _without_none(options):
        raise ArgumentError(f"--{name} {reason}")
