"""Corpora of labeled examples, split into training, validation and test."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from attent.errors import ArgumentError, DataError
from attent.tasks.classification.arrays import VectorSequences, read_npz
from attent.tasks.classification.inputs import (
    Data,
    Inputs,
    PictureInputs,
    TextInputs,
    VectorInputs,
)
from attent.tasks.classification.pictures import Pictures, load_digits, picture_files, read_folder
from attent.tasks.classification.settings import DIGITS, ImagesSettings, LabelledSettings
from attent.text.corpus import MAX_VALIDATION, drop_shared_texts, split_by_class
from attent.text.readers import OVER_LONG, LabelledText, display_name, read_labelled
from attent.text.text import LineTally, ReadReport

ReadTexts = Callable[[str, ReadReport], list[tuple[int, LabelledText]]]
UNITS = "tokens, vectors or patches that this model can read"
# Settings that apply to pictures whose size and colors are fixed.
OF_FINISHED_PICTURES = {"patch", "shift", "turn", "scale", "flip"}


@dataclass(frozen=True)
class LabelledCorpus:
    """Labeled examples, and the rows to train on, to validate on and to test on.

    Args:
        data: all examples.
        classes: of the examples, (N,).
        inputs: the names of the classes, and the preprocessing.
        train: the rows to train on.
        validation: the rows to validate on.
        test: the rows to test on.
        reports: the reports on the text files.
        remarks: remarks on skipped files, for the user.
        lines: the line number of each text.
    """

    data: Data
    classes: np.ndarray
    inputs: Inputs
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    reports: tuple[ReadReport, ...] = ()
    remarks: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()

    @property
    def held_out_digest(self) -> str:
        """A digest of validation and test: while it is unchanged, no run of this corpus was trained on them."""
        digest = hashlib.sha256()
        for rows in (self.validation, self.test):
            digest.update(f"{len(rows)};".encode())
            for row in rows:
                digest.update(f"{self.inputs.labels[self.classes[row]]};".encode())
                digest.update(_content(self.data, row))
        return digest.hexdigest()


def image_corpus(settings: ImagesSettings) -> LabelledCorpus:
    """Read a corpus of pictures or of sequences of vectors.

    Raises:
        ArgumentError: a setting does not apply to these examples.
        AttentError: a required package is not installed.
        DataError: the examples cannot be read, or have fewer than two classes.
    """
    data = read_examples(settings)
    classes = data.classes
    assert classes is not None
    if len(data.labels) < 2:
        raise DataError(f"{settings.source}: at least two classes are needed, got {', '.join(data.labels)}")
    rows, test = split_by_class(classes, settings.test, settings.seed)
    train, validation = (
        rows[part] for part in split_by_class(classes[rows], settings.validation, settings.seed, MAX_VALIDATION)
    )
    if isinstance(data, Pictures):
        inputs, remarks = PictureInputs.of(data, train, settings), data.remarks
    else:
        inputs, remarks = VectorInputs.of(data, train), ()
    return LabelledCorpus(
        data, classes, Inputs(labels=data.labels, inputs=inputs), train, validation, test, remarks=remarks
    )


def read_examples(settings: ImagesSettings) -> Pictures | VectorSequences:
    """Read all examples of the settings' source; raises the errors of `image_corpus`."""
    path = Path(settings.source)
    if settings.source == DIGITS:
        data, kind = load_digits(), "the digits"
    elif path.is_dir():
        return read_folder(path, settings.size, settings.colours)
    elif path.suffix == ".npz":
        data = read_npz(settings.source)
        kind = "sequences of vectors" if isinstance(data, VectorSequences) else "pictures in an .npz"
    else:
        raise DataError(
            f"there are no pictures at {settings.source}: it is neither {DIGITS!r}, nor a folder, nor an .npz"
        )
    allowed = OF_FINISHED_PICTURES if isinstance(data, Pictures) else set[str]()
    if invalid := [name for name in settings.picture_settings if name not in allowed]:
        raise ArgumentError(f"images.{invalid[0]} does not apply to {kind}")
    return data


def count_examples(source: str) -> tuple[int, bool]:
    """Return the number of examples, and whether they are pictures; files in a folder are not opened.

    Raises the errors of `image_corpus`.
    """
    if Path(source).is_dir():
        return len(picture_files(Path(source))), True
    data = read_examples(ImagesSettings.model_validate({"source": source}))
    return len(data), isinstance(data, Pictures)


def labelled_text_corpus(
    settings: LabelledSettings, read: ReadTexts = read_labelled, *, minimum_labels: int = 2
) -> LabelledCorpus:
    """Read a corpus of labeled texts; no text of training is also in validation or test.

    Args:
        settings: the settings.
        read: reads a file, given its name and a report.
        minimum_labels: the minimum number of classes.

    Raises:
        DataError: a file cannot be read, training has too few classes, or another file has a label that does not occur
            in training.
    """
    test, test_report = _read(settings.test, read)
    validation, validation_report = _read(settings.valid, read)
    train, report = _read(settings.train, read)
    assert report is not None
    train = drop_shared_texts(train, (example for _, example in (*test, *validation)), report)
    labels = tuple(sorted({example.label for _, example in train}))
    if len(labels) < minimum_labels:
        raise DataError(f"{display_name(settings.train)}: at least two labels are needed, got {', '.join(labels)}")
    for part, path in ((validation, settings.valid), (test, settings.test)):
        for number, example in part:
            if example.label not in labels:
                raise DataError(
                    f"{display_name(path or '')}, line {number}: the label {example.label!r} does not occur in training"
                )
    examples = [*train, *validation, *test]
    classes = np.array([labels.index(example.label) for _, example in examples], np.int64)
    rows = np.split(np.arange(len(examples)), np.cumsum([len(train), len(validation), len(test)])[:-1])
    if settings.valid is None:
        # the rows of training begin at 0
        rows[:2] = split_by_class(classes[rows[0]], settings.validation, settings.seed, MAX_VALIDATION)
    return LabelledCorpus(
        tuple(example.text for _, example in examples),
        classes,
        Inputs(labels=labels, inputs=TextInputs()),
        *rows,
        reports=tuple(item for item in (report, validation_report, test_report) if item is not None),
        lines=tuple(number for number, _ in examples),
    )


def drop_long(
    corpus: LabelledCorpus,
    lengths: np.ndarray,
    limit: int,
    part: Literal["train", "validation"] = "train",
    *,
    report: int = 0,
) -> LabelledCorpus:
    """Drop the texts of one part that are too long, and report them.

    Args:
        corpus: a corpus of texts.
        lengths: the number of tokens of each text.
        limit: the maximum number of tokens of a text.
        part: the part of the corpus.
        report: the index of the report on the part's file.

    Raises:
        DataError: no text is left to train on.
    """
    rows: np.ndarray = getattr(corpus, part)
    is_long = lengths[rows] > limit
    for row in rows[is_long]:
        corpus.reports[report].drop(OVER_LONG, corpus.lines[row])
    if part == "train" and is_long.all():
        raise DataError(f"all {len(is_long):,} texts are longer than the maximum length of {limit} tokens")
    return replace(corpus, **{part: rows[~is_long]})


def drop_unreadable(corpus: LabelledCorpus, lengths: np.ndarray, longest: int | None) -> LabelledCorpus:
    """Drop the examples that are too long for a model, with a remark.

    Args:
        corpus: the corpus.
        lengths: the length of each example, in tokens, vectors or patches.
        longest: the maximum length that the model can read; no limit if None.

    Raises:
        DataError: no example is left to train on.
    """
    if longest is None:
        return corpus
    parts, remarks = {"train": corpus.train, "validation": corpus.validation, "test": corpus.test}, [*corpus.remarks]
    for name, rows in parts.items():
        parts[name] = rows[lengths[rows] <= longest]
        if len(long := rows[lengths[rows] > longest]):
            remarks.append(f"{name}: {describe_dropped(long, longest, corpus.lines)}")
    if not len(parts["train"]):
        raise DataError(f"all {len(corpus.train):,} examples to train on are longer than the {longest} {UNITS}")
    return replace(corpus, **parts, remarks=tuple(remarks))


def describe_dropped(rows: Sequence[int] | np.ndarray, longest: int, lines: Sequence[int] = ()) -> str:
    """Describe the examples that were dropped because they are too long for a model.

    Args:
        rows: the indices of these examples.
        longest: the maximum length that the model can read.
        lines: the line numbers of all texts; empty if the examples are not texts.
    """
    tally = LineTally()
    for row in rows:
        tally.add(lines[row] if lines else int(row))
    return (
        f"{tally.count:,} dropped: longer than the {longest} {UNITS} ({tally.location('line' if lines else 'example')})"
    )


def check_inputs(run: Inputs, corpus: Inputs) -> None:
    """Check that a run has the classes and the kind of inputs of a corpus.

    Raises:
        ArgumentError: the classes or the kinds of inputs differ.
    """
    if run.labels != corpus.labels:
        raise ArgumentError(
            f"the run has {_describe_classes(run.labels)}, and these examples have {_describe_classes(corpus.labels)}"
        )
    match run.inputs, corpus.inputs:
        case VectorInputs(size=expected), VectorInputs(size=actual) if expected != actual:
            raise ArgumentError(f"the run reads vectors of {expected} numbers, and these have {actual}")
        case PictureInputs() as expected, PictureInputs() as actual if (
            shape := _picture_shape(expected)
        ) != _picture_shape(actual):
            raise ArgumentError(f"the run reads pictures of {shape}, and these have {_picture_shape(actual)}")
        case expected, actual if expected.kind != actual.kind:
            raise ArgumentError(f"the run reads {expected.kind}, and these are {actual.kind}")


def _picture_shape(inputs: PictureInputs) -> str:
    return f"{inputs.height} x {inputs.width} pixels in {inputs.colours}"


def _read(path: str | None, read: ReadTexts) -> tuple[list[tuple[int, LabelledText]], ReadReport | None]:
    if path is None:
        return [], None
    report = ReadReport(display_name(path))
    return read(path, report), report


def _content(data: Data, row: int) -> bytes:
    match data:
        case Pictures():
            return data.pixels[row].tobytes()
        case VectorSequences():
            return data.vectors[row, : data.lengths[row]].tobytes()
        case _:
            return f"{data[row]}\n".encode()


def _describe_classes(labels: Sequence[str]) -> str:
    return f"{len(labels)} classes ({', '.join(labels[:3])}{', …' * (len(labels) > 3)})"
