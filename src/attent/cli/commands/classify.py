"""attent classify: the classes of pictures, sequences of vectors, or texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.options import JsonLines, Loading, RunFolder
from attent.cli.output import say, write
from attent.errors import ArgumentError, DataError
from attent.setting import Bound, Help

if TYPE_CHECKING:
    from attent.tasks.classification.classifier import Classifier, Prediction
    from attent.tasks.classification.inputs import Data


def classify(
    run: RunFolder,
    loading: Loading,
    source: Annotated[
        str,
        typer.Argument(
            metavar="[FILE|TEXT|-]",
            help="A picture, a folder of pictures, an .npz, or digits; a text or a file of lines; - for lines or names "
            "of pictures on standard input.",
        ),
    ] = "-",
    top_k: Annotated[int, Bound(1), Help("Number of most probable classes to print.")] = 1,
    attention: Annotated[Path | None, Help("Draw the attention into this file: PNG, SVG, or HTML.")] = None,
    row: Annotated[int | None, Bound(0), Help("Classify only this example, counted from 0.")] = None,
    invert: Annotated[bool, Help("Invert the brightness of pictures, for dark ink on light paper.")] = False,
    as_json: JsonLines = False,
) -> None:
    """Classify examples, printing a line for each: label, tab, probability, then any less probable classes.

    Empty lines stay empty. Lines that are too long for the model are reported on standard error and left empty.
    """
    from attent.tasks.classification.classifier import load
    from attent.tasks.classification.unlabelled import read_examples

    classifier = loading.tool(run, load)
    names, data = read_examples(classifier, source, say, invert=invert)
    if row is not None:
        if row >= len(names):
            raise ArgumentError(f"--row must be below the number of examples, {len(names)}, got {row}")
        names, data = [names[row]], (data[row],) if isinstance(data, tuple) else data.select([row])
    if attention is not None and len(names) != 1:
        raise ArgumentError(f"--attention draws one example, got {len(names):,}: choose one with --row")
    predictions = _classify(classifier, data, top_k, first=row or 0)
    if attention is not None:
        if predictions[0] is None:
            raise DataError("--attention cannot draw this line: it is empty or too long")
        _draw(classifier, names[0], data, predictions[0], attention)
        say(f"drawn into {attention}")
    for name, prediction in zip(names, predictions, strict=True):
        pairs = [] if prediction is None else list(zip(prediction.labels, prediction.probabilities, strict=True))
        write(
            _json(name, pairs)
            if as_json
            else "\t".join(cell for label, share in pairs for cell in (label, f"{share:.4f}"))
        )
    if any(prediction is None and name.strip() for name, prediction in zip(names, predictions, strict=True)):
        raise typer.Exit(2)


def _classify(classifier: Classifier, data: Data, top_k: int, first: int) -> Sequence[Prediction | None]:
    """Return the prediction for each example; None for an empty line, or for one too long, which is reported."""
    if not isinstance(data, tuple):
        return classifier.classify(data, best=top_k)
    too_long = {*classifier.too_long(classifier.examples(data)).tolist()}
    for row in sorted(too_long):
        say(
            f"line {first + row + 1}: not classified: more than the {classifier.longest} tokens that this model can "
            "read"
        )
    rows = [row for row, text in enumerate(data) if text.strip() and row not in too_long]
    predictions = dict(zip(rows, classifier.classify([data[row] for row in rows], best=top_k), strict=True))
    return [predictions.get(row) for row in range(len(data))]


def _json(name: str, pairs: Sequence[tuple[str, float]]) -> str:
    best = [{"label": label, "probability": share} for label, share in pairs]
    return json.dumps({"name": name, "best": best}, ensure_ascii=False)


def _draw(classifier: Classifier, name: str, data: Data, prediction: Prediction, file: Path) -> None:
    from attent.layers.patches import patch_grid
    from attent.tasks.classification.classifier import scene_of_example
    from attent.tasks.classification.inputs import PictureInputs
    from attent.tasks.classification.pictures import Pictures
    from attent.views.pages.page import ENDINGS, page
    from attent.views.picture import cls_panel, draw_overlay, picture

    title = f"{name}: {prediction.label} ({prediction.probabilities[0]:.1%})"
    if file.suffix.lower() in ENDINGS:
        page(scene_of_example(classifier, data, title=title)).save(file)
        return
    maps = [*classifier.maps(data).values()]
    inputs = classifier.inputs.inputs
    if isinstance(data, Pictures) and isinstance(inputs, PictureInputs):
        draw_overlay(data.pixels[0], patch_grid(inputs.height, inputs.width, inputs.patch), maps, file, title)
        return
    labels = classifier.tokenizer.pieces(data[0]) if classifier.tokenizer and isinstance(data, tuple) else None
    picture(cls_panel(maps, labels, title), file)
