"""attent fill: suggest words for the blanks in a line."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.options import JsonLines, PretrainedLoading, RunOrModel
from attent.cli.output import say, write
from attent.errors import DataError
from attent.setting import Bound, Help
from attent.text.sources import decode_lines, open_source

if TYPE_CHECKING:
    from attent.tasks.fill_mask.fill_mask import FillMask, MaskPrediction
    from attent.tasks.pretrained import PretrainedModel

# The number of pieces to list that a blank attended to most.
ATTENDED = 5


def fill(
    run: RunOrModel,
    loading: PretrainedLoading,
    text: Annotated[
        str, typer.Argument(metavar="[TEXT|FILE|-]", help="A text with [MASK] or _____ in it, a file, or -.")
    ] = "-",
    top_k: Annotated[int, Bound(1), Help("Number of words to suggest for each blank.")] = 5,
    layer: Annotated[int | None, Bound(0), Help("Layer of the attention, from 0; the mean unless given.")] = None,
    head: Annotated[int | None, Bound(0), Help("Head of the attention, from 0; the mean unless given.")] = None,
    as_json: JsonLines = False,
) -> None:
    """Guess the words that [MASK] or _____ stands for, each with its probability.

    The words that each blank attended to most are printed too. TEXT is a text unless a file has this name; empty lines
    of a file stay empty. All blanks in a line are filled independently of each other. An unknown word is read in lower
    case or with a leading space if the model knows that form; otherwise it is reported on standard error and read as
    unknown. Lines without a blank, or too long for the model, are reported too and left empty; the exit code is then 2.
    """
    from attent.tasks.fill_mask.fill_mask import load

    filler: FillMask | PretrainedModel = loading.pretrained(run) or loading.tool(run, load)
    with open_source(text) as stream:
        # a text given as the argument, whose messages need no line number
        is_literal, is_complete = isinstance(stream, io.BytesIO), True
        for number, line in enumerate(decode_lines(stream, text), start=1):
            predictions: list[MaskPrediction] = []
            if is_literal or line.strip():
                try:
                    predictions = filler.fill(line, top_k, layer=layer, head=head)
                except DataError as error:
                    if is_literal:
                        raise
                    say(f"line {number}: not filled: {error}")
                    is_complete = False
            if predictions and (words := filler.unknown_words(line)):
                say(f"line {number}: unknown to this model: {', '.join(map(repr, words))}")
            write(_json(line, predictions) if as_json else "\n".join(_text_lines(line, predictions)), flush=True)
    if not is_complete:
        raise typer.Exit(2)


def _text_lines(line: str, predictions: list[MaskPrediction]) -> Iterator[str]:
    if predictions:
        yield line
    for number, blank in enumerate(predictions, start=1):
        if len(predictions) > 1:
            yield f"  blank {number}"
        yield from (f"  {100 * guess.probability:6.2f} %  {guess.word}" for guess in blank.guesses)
        yield "  looked at  " + "  ".join(f"{piece.piece} {piece.weight:.2f}" for piece in blank.top_attended(ATTENDED))


def _json(line: str, predictions: list[MaskPrediction]) -> str:
    keys = {"position": "place", "guesses": "guesses", "attention": "looks"}
    blanks = [{keys[name]: value for name, value in asdict(blank).items()} for blank in predictions]
    return json.dumps({"text": line, "blanks": blanks}, ensure_ascii=False)
