"""attent evaluate, of a run that classifies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attent.cli.output import say, write
from attent.errors import ArgumentError, DataError, RunError

if TYPE_CHECKING:
    from attent.data.labelled.examples import LabelledExamples
    from attent.decoding.classifier import Classifier
    from attent.evaluation.classes import Confusion


def evaluate_classes(run: Path, classifier: Classifier, images: str | None, labelled: Path | None, *, as_json: bool) -> None:
    """Judge a run on what its corpus holds out, which is read again, or on other examples with labels, and print what came of it.

    Args:
        run: the run folder.
        classifier: that it holds.
        images: pictures or vectors, all of which are judged.
        labelled: texts, all of which are judged.
        as_json: whether it is printed for machines.

    Raises:
        ArgumentError: the examples are not what the run reads, or it holds nothing out.
        DataError: they cannot be read, or have a label that the run does not know.
    """
    from attent.tasks.classification import evaluate_classifier

    if images is not None and labelled is not None:
        raise ArgumentError("--images and --labelled are of two runs")
    if labelled is not None:
        examples, lines = _texts(classifier, labelled)
    else:
        examples, lines = _held_out(run, classifier) if images is None else (_images(classifier, images), ())
    examples = _readable(classifier, examples, lines)
    say(f"classifying {len(examples):,} examples")
    loss, confusion = evaluate_classifier(classifier, examples)
    write(json.dumps(_values(loss, confusion), indent=2) if as_json else "\n".join(_lines(loss, confusion)))


def _readable(classifier: Classifier, examples: LabelledExamples, lines: Sequence[int]) -> LabelledExamples:
    """The examples that the model can read; the others are said."""
    from attent.data.labelled.corpus import describe_dropped
    from attent.data.labelled.examples import LabelledExamples

    if classifier.longest is None or not len(long := classifier.too_long(examples)):
        return examples
    say(describe_dropped(examples.selected[long], classifier.longest, lines))
    if len(long) == len(examples):
        raise DataError("no example is left to be judged on")
    return LabelledExamples(examples.rows, examples.all_classes, np.delete(examples.selected, long))


def _held_out(run: Path, classifier: Classifier) -> tuple[LabelledExamples, Sequence[int]]:
    """What the run was never trained on: the test of its corpus, or else the validation; and the lines that its texts come from."""
    from pydantic import ValidationError

    from attent.data.labelled.corpus import drop_long, image_corpus, labelled_text_corpus
    from attent.data.labelled.settings import ImagesSettings, LabelledSettings
    from attent.data.readers import OVER_LONG
    from attent.runs.config import read_config

    config, settings = read_config(run), None
    corpus = config.corpus
    try:
        if "images" in corpus:
            found = image_corpus(ImagesSettings.model_validate(corpus["images"]))
        else:
            settings = LabelledSettings.model_validate(corpus["labelled"])
            found = labelled_text_corpus(settings)
    except (KeyError, ValidationError) as error:
        raise RunError(f"{run}/config.json is damaged: the settings of its corpus cannot be used") from error
    if not len(found.test) and not len(found.validation):
        raise ArgumentError(f"{run} holds nothing out to be judged on: --images or --labelled names other examples")
    if found.inputs.labels != classifier.labels:
        raise DataError(f"the corpus of {run} has other labels than it had")
    if config.digests.get("held out") not in (None, found.held_out_digest):
        changed = f"the corpus of {run} has changed, and what it holds out now may have been trained on"
        raise DataError(f"{changed}: --images or --labelled names others")
    if len(found.test):
        return classifier.examples(found.data, found.classes, found.test), found.lines
    if settings is not None:
        # as training has validated it
        found = drop_long(found, classifier.examples(found.data).lengths(), settings.maximum_length, "validation")
        for reason, tally in found.reports[0].dropped.items():
            if reason == OVER_LONG:
                say(f"{tally.count:,} dropped: {reason} ({tally.location()})")
    return classifier.examples(found.data, found.classes, found.validation), found.lines


def _images(classifier: Classifier, source: str) -> LabelledExamples:
    from attent.data.labelled.corpus import read_examples
    from attent.data.labelled.inputs import PictureInputs
    from attent.data.labelled.settings import ImagesSettings

    how = classifier.inputs.inputs
    folder = isinstance(how, PictureInputs) and Path(source).is_dir()
    brought = {"size": (how.height, how.width), "colours": how.colours} if folder and isinstance(how, PictureInputs) else {}
    data = read_examples(ImagesSettings.model_validate({"source": source, **brought}))
    assert data.classes is not None
    classes = _known(classifier, [data.labels[number] for number in data.classes], source)
    return classifier.examples(classifier.data(data), classes)


def _texts(classifier: Classifier, path: Path) -> tuple[LabelledExamples, Sequence[int]]:
    from attent.data.readers import read_labelled
    from attent.data.report import ReadReport

    report = ReadReport(str(path))
    lines, found = zip(*read_labelled(str(path), report), strict=True)
    for line in report.summary():
        say(line)
    classes = _known(classifier, [example.label for example in found], str(path))
    return classifier.examples(classifier.data([example.text for example in found]), classes), lines


def _known(classifier: Classifier, labels: list[str], source: str) -> np.ndarray:
    """The classes of these labels, as the run numbers them."""
    numbers = {label: number for number, label in enumerate(classifier.labels)}
    if unknown := sorted(set(labels) - numbers.keys()):
        known = ", ".join(classifier.labels[:10]) + ", …" * (len(classifier.labels) > 10)
        raise DataError(f"{source}: the run does not know the label {unknown[0]!r}; it knows {known}")
    return np.array([numbers[label] for label in labels], np.int64)


def _values(loss: float, confusion: Confusion) -> dict[str, Any]:
    return {
        "examples": int(confusion.counts.sum()),
        "accuracy": confusion.accuracy,
        "macro F1": confusion.macro_f1,
        "loss": loss,
        "labels": list(confusion.labels),
        "confusion": confusion.counts.tolist(),
    }


def _lines(loss: float, confusion: Confusion) -> list[str]:
    return [
        f"accuracy  {confusion.accuracy:6.2f} %",
        f"macro F1  {confusion.macro_f1:6.2f} %",
        f"loss      {loss:6.3f} nats per example, {confusion.counts.sum():,} examples",
        "a row for each class that it was, a column for each that was told:",
        *confusion.table(),
    ]
