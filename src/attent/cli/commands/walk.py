"""attent walk: every number of the formula."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent import registry
from attent.cli.lines import as_utf8
from attent.cli.options import Device, TrustCode, device_of, loaded
from attent.cli.output import write
from attent.devices import AUTO
from attent.errors import ArgumentError

if TYPE_CHECKING:
    from attent.decoding.translator import Translator


def walk(
    words: Annotated[list[str] | None, typer.Argument(metavar="[RUN] [TEXT]", help="A text; or a run folder and a text.")] = None,
    score: Annotated[str | None, typer.Option(help="Of a text alone: any score, by name; scaled_dot unless given.")] = None,
    scale: Annotated[bool, typer.Option("--scale/--no-scale", help="Of a text alone: whether to divide by √Dk.")] = True,
    heads: Annotated[int | None, typer.Option(min=1, max=64, help="Of a text alone: how many heads; 1 unless given.")] = None,
    normalizer: Annotated[
        str | None, typer.Option("--normaliser", "--normalizer", help="Of a text alone: any normalizer, by name; softmax unless given.")
    ] = None,
    mask: Annotated[str | None, typer.Option(help="Of a text alone: such as causal.")] = None,
    width: Annotated[int | None, typer.Option(min=1, max=64, help="Of a text alone: how many numbers a word has; 4 unless given.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Of a text alone: of the random matrices; 0 unless given.")] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="Of a run: the layer, from 0; the last unless given.")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="Of a run: the head, from 0; the first unless given.")] = None,
    kind: Annotated[str | None, typer.Option(help="Of a run: encoder (unless given), decoder or cross.")] = None,
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """Walk through attention: every step with its equation, its shape and its numbers, named by the words.

    Of a text alone the numbers are made up; of a run they are those of the trained model.
    """
    made_up = {"score": score, "heads": heads, "normalizer": normalizer, "mask": mask, "seed": seed, "width": width}
    trained = {"layer": layer, "head": head, "kind": kind}
    given = words or ["The cat sat on the mat"]
    if len(given) > 2:
        raise ArgumentError(f"walk takes a text, or a run folder and a text, got {len(given)} arguments: put the text in quotes")
    as_utf8(given[-1])
    if len(given) == 2:
        if not Path(given[0]).exists():
            raise ArgumentError(f"there is no run folder {given[0]}; a text of several words goes in quotes")
        _refuse(made_up | {"no-scale": None if scale else True}, "is for a text without a run; a run has been trained with its own")
        translator = loaded(given[0], device_of(device), "translate", trust_code=trust_code)
        _print_run(translator, given[1], _given(trained))
        return
    if (Path(given[0]) / "config.json").is_file():
        raise ArgumentError(f"{given[0]} is a run folder, of which a walk needs a text too: attent walk {given[0]} TEXT")
    _refuse(trained, "needs a run: attent walk RUN TEXT")
    for part, name in (("score", score), ("normalizer", normalizer), ("mask", mask)):
        registry.check(part, name)
    # a score is built for the widths, whatever it needs
    _must_suffice("normalizer", normalizer)
    _must_suffice("mask", mask)
    from attent.views.walk import walk as walk_text

    write(walk_text(given[0], scale=scale, **_given(made_up)))


def _print_run(translator: Translator, text: str, choice: dict[str, Any]) -> None:
    from attent.data.tokenizer import respell
    from attent.views.walk import walk_run

    write(walk_run(translator, respell(text, translator.source_tokenizer), **choice))


def _must_suffice(kind: str, name: str | None) -> None:
    """Raise where a name alone does not say all of a part."""
    from attent.attention import choices

    found = None if name is None else choices.missing(kind, name)
    if found is not None:
        written, whole = found
        raise ArgumentError(
            f"--{kind} {name} needs values that a command cannot give; "
            f"it takes {', '.join(whole)}; or in Python: attent.walk(TEXT, {written})"
        )


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse(options: dict[str, Any], why: str) -> None:
    for name in _given(options):
        raise ArgumentError(f"--{name} {why}")
