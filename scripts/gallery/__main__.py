"""Draw the gallery: `make gallery`, or scripts/gallery with options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import typer

from attent.errors import AttentError, UnknownNameError
from gallery import (
    alignment,
    digits,
    elsewhere,
    exchanged,
    heads,
    length,
    positions,
    registrar,
    salary,
    self_attention,
    sentences,
    stories,
)
from gallery.encoder import Encoder
from gallery.examples import example
from gallery.plates import Plate, page, write
from gallery.runs import DATES, DATES_RNN, DIGITS, STORIES, run

ROOT = Path(__file__).parents[2]
PAGE, PICTURES = ROOT / "docs" / "gallery.md", ROOT / "docs" / "gallery"
DATA, RUNS, COMPARED = (
    ROOT.parent / "shared" / "data",
    ROOT / "runs" / "gallery",
    ROOT / "docs" / "compare" / "length.json",
)
DOG = "When he saw his owner, the dog was happy, so he wagged his tail"
SENTENCES = {
    "dog": (DOG, (("happy", "tail"), ("##gged", "tail"))),
    "pizza-yesterday": ("I ate pizza yesterday", (("ate", "pizza"), ("ate", "yesterday"))),
    "pizza-not-bad": ("This pizza is not too bad", (("bad", "not"), ("bad", "pizza"))),
}


def plates(data: Path, runs: Path, compared: Path) -> Mapping[str, Callable[[], Plate]]:
    """Return the function that draws each plate, by name, in the order of the page.

    Args:
        data: the folder of corpora.
        runs: the folder of trained runs; missing runs are trained.
        compared: the JSON of `scripts/bench compare length`; if it is missing, a short comparison is run.
    """
    encoder = cache(Encoder)
    captions = cache(partial(elsewhere.captions, data))

    def sentence(name: str) -> Plate:
        return sentences.plate(name, encoder(), captions(), *SENTENCES[name])

    return {
        "registrar": lambda: registrar.plate(example("registrar")["MAJORS"]),
        "salary": salary.plate,
        "self-attention": lambda: self_attention.plate(encoder()),
        **{name: partial(sentence, name) for name in SENTENCES},
        "cat-and-mat": lambda: exchanged.plate(encoder(), captions()),
        "heads": lambda: heads.grid(encoder()),
        "positions": positions.plate,
        "alignment": lambda: alignment.plate(run(DATES_RNN, runs)),
        "stories": lambda: stories.plate(run(STORIES, runs)),
        "cross-attention": lambda: heads.cross(run(DATES, runs)),
        "quality-by-length": lambda: length.plate(length.load(compared, runs)),
        "digits": lambda: digits.plate(run(DIGITS, runs)),
    }


def main(
    only: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these plates; the others stay as they are.")
    ] = None,
    data: Annotated[
        Path, typer.Option(envvar="ATTENT_DATA", help="The folder of corpora, with multi30k in it.")
    ] = DATA,
    runs: Annotated[Path, typer.Option(help="Trained runs; missing ones are trained, which takes minutes.")] = RUNS,
    compared: Annotated[
        Path, typer.Option(help="JSON of `scripts/bench compare length`; without it a short comparison is run.")
    ] = COMPARED,
) -> None:
    """Draw every plate into docs/gallery, and write docs/gallery.md."""
    drawings = plates(data, runs, compared)
    for name in only or []:
        if name not in drawings:
            raise UnknownNameError("plate", name, drawings)
    for name in only or drawings:
        print(write(drawings[name](), PICTURES), flush=True)
    PAGE.write_text(page(PICTURES, [*drawings]), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    try:
        typer.run(main)
    except AttentError as error:
        sys.exit(f"{type(error).__name__}: {error}")
