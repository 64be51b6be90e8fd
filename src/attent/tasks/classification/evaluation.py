"""Evaluation of a classifier and of its heads: accuracy, macro F1 and the confusion matrix of labeled examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from attent.alignment.ablation import ACCURACY, HeadJudge, Metric
from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, DataError, RunError, ShapeError, refuse
from attent.runs.config import read_config
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.corpus import (
    describe_dropped,
    drop_long,
    image_corpus,
    labelled_text_corpus,
    read_examples,
)
from attent.tasks.classification.inputs import LabelledExamples, PictureInputs
from attent.tasks.classification.settings import ImagesSettings, LabelledSettings
from attent.tasks.evaluation import Evaluation, Say
from attent.text.batches import BatchSize
from attent.text.readers import OVER_LONG, read_labelled
from attent.text.text import ReadReport


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix.

    Args:
        counts: the number of examples of class i that were predicted as class j, (C, C).
        labels: the names of the classes.
    """

    counts: np.ndarray
    labels: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """Return the share of correct predictions, in percent."""
        return 100 * float(np.trace(self.counts)) / max(int(self.counts.sum()), 1)

    @property
    def f1(self) -> np.ndarray:
        """Return the F1 score of each class, 2·correct / (predicted + actual), in percent, (C,).

        NaN for a class that never occurs.
        """
        predicted_and_actual = self.counts.sum(0) + self.counts.sum(1)
        return 100 * 2 * np.diag(self.counts) / np.where(predicted_and_actual, predicted_and_actual, np.nan)

    @property
    def macro_f1(self) -> float:
        """Return the mean F1 score of the classes that occur, in percent."""
        return float(np.nanmean(self.f1)) if self.counts.any() else 0.0

    def top_confusions(self, count: int) -> list[tuple[str, str, int]]:
        """Return the most frequent mistakes: actual class, predicted class and count."""
        wrong = self.counts * ~np.eye(len(self.labels), dtype=bool)
        order = np.argsort(-wrong, axis=None, kind="stable")[:count]
        cells = zip(*np.unravel_index(order, wrong.shape), strict=True)
        return [(self.labels[row], self.labels[column], int(n)) for row, column in cells if (n := wrong[row, column])]

    def table(self) -> list[str]:
        """Return the matrix as lines of text, with a row per actual class and a column per predicted class."""
        rows = [
            [label, *(str(n) if n else "·" for n in row)] for label, row in zip(self.labels, self.counts, strict=True)
        ]
        cells = [["", *self.labels], *rows]
        widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
        return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]


def confusion(
    classes: Sequence[int] | np.ndarray, predictions: Sequence[int] | np.ndarray, labels: Sequence[str]
) -> Confusion:
    """Count predictions by actual class.

    Args:
        classes: the actual class of each example, (N,).
        predictions: the predicted class of each example, (N,).
        labels: the names of the classes.

    Raises:
        ShapeError: `classes` and `predictions` have different lengths.
    """
    if len(classes) != len(predictions):
        raise ShapeError(f"each of {len(classes)} classes needs a prediction, got {len(predictions)}")
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (np.asarray(classes, np.int64), np.asarray(predictions, np.int64)), 1)
    return Confusion(counts, tuple(labels))


def evaluate_classifier(
    classifier: Classifier, examples: LabelledExamples, size: BatchSize | None = None
) -> tuple[float, Confusion]:
    """Return the mean cross entropy in nats per example, and the confusion matrix.

    Args:
        classifier: the classifier, in evaluation mode.
        examples: the examples with their classes, at least one.
        size: the batch size.
    """
    log_probs, classes = classifier.log_probs(examples, size), examples.classes
    loss = -log_probs[np.arange(len(classes)), classes].mean().item()
    return loss, confusion(classes, log_probs.argmax(-1).numpy(), classifier.labels)


def classification_report(loss: float, confusion: Confusion) -> Evaluation:
    """Return the evaluation of a mean cross entropy, in nats per example, and a confusion matrix."""
    values = {
        "examples": int(confusion.counts.sum()),
        "accuracy": confusion.accuracy,
        "macro F1": confusion.macro_f1,
        "loss": loss,
        "labels": list(confusion.labels),
        "confusion": confusion.counts.tolist(),
    }
    lines = [
        f"accuracy  {confusion.accuracy:6.2f} %",
        f"macro F1  {confusion.macro_f1:6.2f} %",
        f"loss      {loss:6.3f} nats per example, {values['examples']:,} examples",
        "rows: true class, columns: predicted class",
        *confusion.table(),
    ]
    return Evaluation(values, lines)


def labelled_examples(
    classifier: Classifier, say: Say, *, images: str | None = None, labelled: str | Path | None = None
) -> LabelledExamples:
    """Read labeled texts, or labeled pictures or vectors, without those that are too long.

    Args:
        classifier: the classifier, which must know the labels.
        say: shows a message to the user.
        images: the source of pictures or vectors.
        labelled: the file of texts, instead of `images`.

    Raises:
        ArgumentError: the examples are not of the kind that the run reads.
        DataError: they cannot be read, have a label that the run does not know, or are all too long.
    """
    if labelled is not None:
        return _drop_long(classifier, *_read_texts(classifier, labelled, say), say)
    assert images is not None
    return _drop_long(classifier, _read_images(classifier, images), (), say)


def held_out_examples(run: Path, classifier: Classifier, say: Say) -> LabelledExamples:
    """Return the test examples of a run's corpus, or else its validation examples, without those that are too long.

    Raises:
        ArgumentError: the corpus has no held-out examples.
        DataError: it cannot be read, or has changed.
        RunError: the run is damaged.
    """
    return _drop_long(classifier, *_held_out(run, classifier, say), say)


def _drop_long(
    classifier: Classifier, examples: LabelledExamples, line_numbers: Sequence[int], say: Say
) -> LabelledExamples:
    """Return the examples that the model can read, and report the others."""
    if classifier.longest is None or not len(long := classifier.too_long(examples)):
        return examples
    say(describe_dropped(examples.selected[long], classifier.longest, line_numbers))
    if len(long) == len(examples):
        raise DataError("no example is left to evaluate")
    return LabelledExamples(examples.rows, examples.all_classes, np.delete(examples.selected, long))


def _held_out(run: Path, classifier: Classifier, say: Say) -> tuple[LabelledExamples, Sequence[int]]:
    """Return the test examples of a run's corpus, or else its validation examples, and the line numbers of texts."""
    config, settings = read_config(run), None
    try:
        if "images" in config.corpus:
            corpus = image_corpus(ImagesSettings.model_validate(config.corpus["images"]))
        else:
            settings = LabelledSettings.model_validate(config.corpus["labelled"])
            corpus = labelled_text_corpus(settings)
    except (KeyError, ValidationError) as error:
        raise RunError(f"{run}/config.json is damaged: the settings of its corpus cannot be used") from error
    if not len(corpus.test) and not len(corpus.validation):
        raise ArgumentError(f"{run} has no held-out examples: evaluate it on others with --images or --labelled")
    refuse(
        (
            corpus.inputs.labels != classifier.labels,
            f"the labels of the corpus of {run} differ from those in training",
        ),
        (
            config.digests.get("held out") not in (None, corpus.held_out_digest),
            f"the corpus of {run} has changed, and its held-out examples may have been trained on: give others with "
            "--images or --labelled",
        ),
        kind=DataError,
    )
    if len(corpus.test):
        return classifier.examples(corpus.data, corpus.classes, corpus.test), corpus.lines
    if settings is not None:
        # as in the validations of training
        corpus = drop_long(corpus, classifier.examples(corpus.data).lengths(), settings.maximum_length, "validation")
        for reason, tally in corpus.reports[0].dropped.items():
            if reason == OVER_LONG:
                say(f"{tally.count:,} dropped: {reason} ({tally.location()})")
    return classifier.examples(corpus.data, corpus.classes, corpus.validation), corpus.lines


def _read_images(classifier: Classifier, source: str) -> LabelledExamples:
    inputs, resize = classifier.inputs.inputs, dict[str, Any]()
    if isinstance(inputs, PictureInputs) and Path(source).is_dir():
        resize = {"size": (inputs.height, inputs.width), "colours": inputs.colours}
    data = read_examples(ImagesSettings.model_validate({"source": source, **resize}))
    assert data.classes is not None
    classes = _class_numbers(classifier, [data.labels[number] for number in data.classes], source)
    return classifier.examples(classifier.data(data), classes)


def _read_texts(classifier: Classifier, path: Path | str, say: Say) -> tuple[LabelledExamples, Sequence[int]]:
    report = ReadReport(str(path))
    line_numbers, examples = zip(*read_labelled(str(path), report), strict=True)
    for line in report.summary():
        say(line)
    classes = _class_numbers(classifier, [example.label for example in examples], str(path))
    return classifier.examples(classifier.data([example.text for example in examples]), classes), line_numbers


def _class_numbers(classifier: Classifier, labels: list[str], source: str) -> np.ndarray:
    """Return the run's class index of each label."""
    numbers = {label: number for number, label in enumerate(classifier.labels)}
    if unknown := sorted(set(labels) - numbers.keys()):
        known_labels = ", ".join(classifier.labels[:10]) + ", …" * (len(classifier.labels) > 10)
        raise DataError(f"{source}: the run does not know the label {unknown[0]!r}; it knows {known_labels}")
    return np.array([numbers[label] for label in labels], np.int64)


class ClassJudge(HeadJudge):
    """Evaluates a classifier by its accuracy or its loss.

    Args:
        classifier: the classifier to evaluate.
        examples: the examples with their classes, none too long for the model.
        metric: ACCURACY or CLASS_LOSS.
    """

    def __init__(self, classifier: Classifier, examples: LabelledExamples, metric: Metric = ACCURACY) -> None:
        super().__init__(classifier.model, metric)
        self.classifier, self.examples = classifier, examples

    def __len__(self) -> int:
        return len(self.examples)

    def statistics(self) -> np.ndarray:
        log_probs, classes = self.classifier.log_probs(self.examples).double().numpy(), self.examples.classes
        if self.metric is ACCURACY:
            numbers = (log_probs.argmax(1) == classes).astype(float)
        else:
            numbers = -log_probs[np.arange(len(classes)), classes]
        return np.stack((numbers, np.ones(len(classes))), 1)

    @torch.no_grad()
    def maps(self, example: int) -> Mapping[str, AttentionMap]:
        row = int(self.examples.selected[example])
        length = int(self.examples.rows.lengths[row])
        sequence = self.examples.rows.read(np.array([row]), None)[:, :length].to(self.classifier.device)
        with watch(self.model) as maps:
            self.model(sequence, torch.tensor([length], device=self.classifier.device))
        return dict(maps.items())
