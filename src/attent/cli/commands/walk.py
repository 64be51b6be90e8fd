"""attent walk: every number of the formula."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent import registry
from attent.cli.options import NUMBER, Loading
from attent.cli.output import say, write
from attent.errors import ArgumentError
from attent.mask_text import check_mask
from attent.setting import Bound, Flag, Help
from attent.text.sources import check_utf8

if TYPE_CHECKING:
    from attent.views.render_walk import Walk

ENDINGS = (".html", ".htm")


@dataclass(frozen=True)
class TextOptions:
    """Attention of a text alone, with random matrices; the defaults are those of `attent.walk`."""

    score: Annotated[str | None, Help("Text alone: name of the score; scaled_dot unless given.")] = None
    scale: Annotated[bool, Flag("--scale/--no-scale"), Help("Text alone: whether scores are divided by √Dk.")] = True
    heads: Annotated[int | None, Bound(1, 64), Help("Text alone: number of heads; 1 unless given.")] = None
    normalizer: Annotated[str | None, Help("Text alone: name of the normalizer; softmax unless given.")] = None
    mask: Annotated[
        str | None,
        Help("Text alone: causal, window:2, prefix:3, documents:0,0,1, or several of them joined by & and |."),
    ] = None
    position: Annotated[
        str | None,
        Help("Text alone: sinusoidal, learned, rotary, alibi or relative_bias; none unless given."),
    ] = None
    cross: Annotated[str | None, Help("Text alone: a second text, which the first attends to.", "TEXT")] = None
    vectors: Annotated[
        Path | None, Help("Text alone: file of word vectors (GloVe, word2vec, fastText) for its words.", "FILE")
    ] = None
    width: Annotated[int | None, Bound(1, 64), Help("Text alone: dimension of a word's vector; 4 unless given.")] = None
    seed: Annotated[
        int | None, Bound(0, 2**63 - 1), Help("Text alone: seed of the random matrices; 0 unless given.")
    ] = None


@dataclass(frozen=True)
class RunOptions:
    """The head of a run."""

    head: Annotated[int | None, Bound(0), Help("Run: number of the head, from 0; 0 unless given.")] = None
    kind: Annotated[
        str | None, Help("Run: encoder, decoder or cross attention; the first that it has unless given.")
    ] = None


def walk(
    text: TextOptions,
    run_options: RunOptions,
    loading: Loading,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN] [TEXT]", help="A text; or a run folder and a text.")
    ] = None,
    layer: Annotated[
        str | None,
        Help(
            "whole for all of the layer, up to the most probable words of a run; of a run also its number from 0, or "
            "whole:0."
        ),
    ] = None,
    out: Annotated[
        Path | None, Help("Also write a page with every number; point at one to see its terms.", "FILE.html")
    ] = None,
) -> None:
    """Walk through attention step by step: equations, shapes and numbers, labeled by the words.

    The numbers of a text alone are random; those of a run are the trained model's.
    """
    whole, number = _layer(layer)
    text_options, of_run = asdict(text), {"layer": number, **asdict(run_options)}
    scale = text_options.pop("scale")
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise ArgumentError(f"--out must end in {ENDINGS[0]}, got {str(out)!r}")
    arguments = words or ["The cat sat on the mat"]
    if len(arguments) > 2:
        raise ArgumentError(
            f"walk takes a text, or a run folder and a text, got {len(arguments)} arguments: put the text in quotes"
        )
    check_utf8(arguments[-1])
    check_utf8(text.cross or "")
    if len(arguments) == 2:
        if not Path(arguments[0]).exists():
            raise ArgumentError(f"there is no run folder {arguments[0]}; a text of several words goes in quotes")
        refused = text_options | {"no-scale": None if scale else True}
        _refuse(refused, "is for a text without a run; a run has been trained with its own")
        run = loading.stored_run(arguments[0]).tool
        from attent.views.walk import walk_run

        _show(walk_run(run, arguments[1], whole=whole, **_without_none(of_run)), out)
        return
    if (Path(arguments[0]) / "config.json").is_file():
        raise ArgumentError(
            f"{arguments[0]} is a run folder, of which a walk needs a text too: attent walk {arguments[0]} TEXT"
        )
    _refuse(of_run, "needs a run: attent walk RUN TEXT")
    for part, name in (("score", text.score), ("normalizer", text.normalizer), ("position", text.position)):
        registry.check(part, name)
    if text.mask is not None:
        check_mask(text.mask)
    # a score or a position is built for the widths, whatever parameters it needs
    _check_complete("normalizer", text.normalizer)
    from attent.views.walk import walk as walk_text

    if text.vectors is not None:
        from attent.text import word_vectors

        text_words = f"{arguments[0]} {text.cross or ''}".split()
        # vectors often have lower case alone
        forms = {form for word in text_words for form in (word, word.lower())}
        text_options["vectors"] = word_vectors.read(text.vectors, forms)

    _show(walk_text(arguments[0], scale=scale, whole=whole, **_without_none(text_options)), out)


def _show(walk: Walk, out: Path | None) -> None:
    """Write a walk, and its page into a file if one is named."""
    write(walk)
    if out is not None:
        from attent.views.pages.page import walk_page

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
