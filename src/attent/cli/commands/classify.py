"""attent classify: the class of pictures, of sequences of vectors or of texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attent.cli.lines import lines_of, opened
from attent.cli.options import Device, TrustCode, device_of, loaded
from attent.cli.output import say, write
from attent.devices import AUTO
from attent.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from attent.data.labelled.corpus import Data
    from attent.decoding.classifier import Classifier, Prediction


def classify(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="[FILE|TEXT|-]",
            help="A picture, a folder of them, an .npz, digits; or a text, a file of lines; - for lines, or for names of pictures.",
        ),
    ] = "-",
    best: Annotated[int, typer.Option(min=1, help="How many of the likeliest classes to name.")] = 1,
    attention: Annotated[Path | None, typer.Option(help="Draw where it looked into this file, PNG or SVG; HTML is a page.")] = None,
    row: Annotated[int | None, typer.Option(min=0, help="Classify this example alone, from 0.")] = None,
    invert: Annotated[bool, typer.Option("--invert", help="Take dark for light: for ink on paper.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object a line, with what each example is called.")] = False,
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """Tell classes: a line for each example, its label, a tab and its probability; further classes behind.

    An empty line stays empty, and so does one that is longer than the model can read, which is named on standard error.
    """
    classifier: Classifier = loaded(run, device_of(device), "classify", trust_code=trust_code)
    names, data = examples(classifier, source, invert=invert)
    if row is not None:
        if row >= len(names):
            raise ArgumentError(f"--row must be below the {len(names)} examples that there are, got {row}")
        names, data = [names[row]], _row(data, row)
    if attention is not None and len(names) != 1:
        raise ArgumentError(f"--attention draws one example, got {len(names):,}: --row says which")
    told = _told(classifier, data, best, first=row or 0)
    if attention is not None and told[0] is None:
        raise DataError("--attention draws an example, and the line is empty or too long")
    if attention is not None and told[0] is not None:
        _draw(classifier, names[0], data, told[0], attention)
        say(f"drawn into {attention}")
    for name, one in zip(names, told, strict=True):
        write(_json(name, one) if as_json else "\t".join(_columns(one)))
    if any(one is None and name.strip() for name, one in zip(names, told, strict=True)):
        raise typer.Exit(2)


def _told(classifier: Classifier, data: Data, best: int, first: int) -> Sequence[Prediction | None]:
    """What is told of each example; nothing of an empty line, nor of one that is too long, which is said."""
    if not isinstance(data, tuple):
        return classifier.classify(data, best=best)
    too_long = {*classifier.too_long(classifier.examples(data)).tolist()}
    for row in sorted(too_long):
        say(f"line {first + row + 1}: not classified: more than the {classifier.longest} tokens that this model can read")
    rows = [row for row, text in enumerate(data) if text.strip() and row not in too_long]
    found = dict(zip(rows, classifier.classify([data[row] for row in rows], best=best), strict=True))
    return [found.get(row) for row in range(len(data))]


def _columns(told: Prediction | None) -> list[str]:
    if told is None:
        return []
    return [cell for label, share in zip(told.labels, told.probabilities, strict=True) for cell in (label, f"{share:.4f}")]


def _json(name: str, told: Prediction | None) -> str:
    pairs = () if told is None else zip(told.labels, told.probabilities, strict=True)
    best = [{"label": label, "probability": share} for label, share in pairs]
    return json.dumps({"name": name, "best": best}, ensure_ascii=False)


def examples(classifier: Classifier, source: str, *, invert: bool) -> tuple[list[str], Data]:
    """What the source holds, and what each example is called: a text by itself, a picture by its file."""
    kind = classifier.inputs.inputs.kind
    if invert and kind != "pictures":
        raise ArgumentError(f"--invert is for pictures, and this run reads {kind}")
    match kind:
        case "texts":
            texts = _lines(source)
            return texts, classifier.data(texts)
        case "vectors":
            from attent.data.labelled.arrays import VectorSequences, read_npz

            if Path(source).suffix != ".npz":
                raise ArgumentError(f"this run reads sequences of vectors, from an .npz, got {source or repr(source)}")
            found = read_npz(source, labelled=False)
            if not isinstance(found, VectorSequences):
                raise ArgumentError(f"this run reads sequences of vectors, and {source} holds pictures")
            return [str(number) for number in range(len(found))], classifier.data(found)
        case "pictures":
            return _pictures(classifier, source, invert)


def _pictures(classifier: Classifier, source: str, invert: bool) -> tuple[list[str], Data]:
    from attent.data.labelled.arrays import read_npz
    from attent.data.labelled.pictures import Pictures, load_digits, picture_files
    from attent.data.labelled.settings import DIGITS

    found: Any
    if source == DIGITS and not Path(source).exists():
        found = load_digits()
        names = [str(number) for number in range(len(found))]
    elif Path(source).suffix == ".npz":
        found = read_npz(source, labelled=False)
        if not isinstance(found, Pictures):
            raise ArgumentError(f"this run reads pictures, and {source} holds sequences of vectors")
        names = [str(number) for number in range(len(found))]
    else:
        folder = Path(source)
        files = list(_lines(source)) if source == "-" else [str(file) for file in picture_files(folder)] if folder.is_dir() else [source]
        files = [file for file in files if file.strip()]
        if not files:
            raise DataError(f"{source} has no picture")
        names, found = files, files
    data = classifier.data(found)
    assert isinstance(data, Pictures)
    if invert:
        data = Pictures((255 if data.pixels.dtype.kind == "u" else 1) - data.pixels, data.classes, data.labels)
    return names, data


def _lines(source: str) -> list[str]:
    with opened(source) as stream:
        return [*lines_of(stream, source)]


def _row(data: Data, row: int) -> Data:
    from attent.data.labelled.arrays import VectorSequences
    from attent.data.labelled.pictures import Pictures

    if isinstance(data, Pictures):
        return Pictures(data.pixels[[row]], None, ())
    if isinstance(data, VectorSequences):
        return VectorSequences(data.vectors[[row]], data.lengths[[row]], None, ())
    return (data[row],)


def _draw(classifier: Classifier, name: str, data: Data, told: Prediction, file: Path) -> None:
    from attent.data.labelled.inputs import PictureInputs
    from attent.data.labelled.pictures import Pictures
    from attent.layers.patches import patch_grid
    from attent.views.pages.page import ENDINGS, page
    from attent.views.patch_overlay import cls_panel, draw_overlay
    from attent.views.picture import picture
    from attent.views.run_scene import scene_of_example

    title = f"{name}: {told.label} ({told.probabilities[0]:.1%})"
    if file.suffix.lower() in ENDINGS:
        page(scene_of_example(classifier, data, title=title)).save(file)
        return
    maps = [*classifier.maps(data).values()]
    how = classifier.inputs.inputs
    if isinstance(data, Pictures) and isinstance(how, PictureInputs):
        draw_overlay(data.pixels[0], patch_grid(how.height, how.width, how.patch), maps, file, title)
        return
    labels = classifier.tokenizer.pieces(data[0]) if classifier.tokenizer and isinstance(data, tuple) else None
    picture(cls_panel(maps, labels, title), file)
