"""A corpus of labelled examples: read, and divided into what is trained on, validated on and judged by."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from attent.data.batches import Sequences
from attent.data.labelled.arrays import VectorSequences, arrays
from attent.data.labelled.examples import PictureRows, Rows, TextRows, VectorRows
from attent.data.labelled.inputs import Inputs, PictureInputs, TextInputs, VectorInputs
from attent.data.labelled.pictures import Pictures, digits, folder, pictures_in
from attent.data.labelled.settings import DIGITS, ImagesSettings, LabelledSettings
from attent.data.labelled.splitting import stratified
from attent.data.labelled.texts import LabelledText, named, read_labelled, without
from attent.data.readers import OVER_LONG, LineTally, ReadReport
from attent.data.tokenizer import Tokenizer
from attent.errors import ArgumentError, DataError

# Validation that is split off has no more examples than these.
MOST = 1_000
PLACES = "tokens, vectors or patches that this model can read"
Data = Pictures | VectorSequences | tuple[str, ...]


@dataclass(frozen=True)
class LabelledCorpus:
    """Examples of each class, and which of them serve for what.

    Args:
        data: all of them.
        classes: the class of each, (N,).
        inputs: the names of the classes, and how examples become what a model reads.
        train: the rows to train on.
        validation: the rows to validate on.
        test: the rows to judge by.
        reports: on the files of texts.
        remarks: what was passed over besides.
        lines: where each text comes from, for the report on those to train on.
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
        """A digest of the examples that are not trained on: the same as long as none of them can have been."""
        found = hashlib.sha256()
        for rows in (self.validation, self.test):
            found.update(f"{len(rows)};".encode())
            for row in rows:
                found.update(f"{self.inputs.labels[self.classes[row]]};".encode())
                found.update(_content(self.data, row))
        return found.hexdigest()


def image_corpus(settings: ImagesSettings) -> LabelledCorpus:
    """Pictures, or sequences of vectors.

    Raises:
        ArgumentError: the settings do not go with what is there.
        AttentError: a package that is needed is not installed.
        DataError: what cannot be read, or has fewer than two classes.
    """
    data = read(settings)
    classes = data.classes
    assert classes is not None
    if len(data.labels) < 2:
        raise DataError(f"{settings.source}: at least two classes are needed, got {', '.join(data.labels)}")
    left, test = stratified(classes, settings.test, settings.seed)
    rest, kept = stratified(classes[left], settings.validation, settings.seed, MOST)
    train, validation = left[rest], left[kept]
    if isinstance(data, Pictures):
        inputs, said = PictureInputs.of(data, train, settings), data.remarks
    else:
        inputs, said = VectorInputs.of(data, train), ()
    return LabelledCorpus(data, classes, Inputs(labels=data.labels, inputs=inputs), train, validation, test, remarks=said)


def read(settings: ImagesSettings) -> Pictures | VectorSequences:
    """All the examples of these settings; errors as for `of_images`."""
    if settings.source == DIGITS:
        _only(settings, {"patch", "shift", "turn", "scale", "flip"}, "the digits")
        return digits()
    if Path(settings.source).suffix == ".npz" and not Path(settings.source).is_dir():
        found = arrays(settings.source)
        if isinstance(found, VectorSequences):
            _only(settings, set(), "sequences of vectors")
        else:
            _only(settings, {"patch", "shift", "turn", "scale", "flip"}, "pictures in an .npz")
        return found
    if not Path(settings.source).is_dir():
        raise DataError(f"there are no pictures {settings.source}: it is neither {DIGITS!r}, nor a folder, nor an .npz")
    return folder(settings.source, settings.size, settings.colours)


def count_examples(source: str) -> tuple[int, bool]:
    """How many examples there are, and whether they are pictures; a folder's are not opened for it. Errors as for `of_images`."""
    if Path(source).is_dir():
        return len(pictures_in(Path(source))), True
    found = read(ImagesSettings.model_validate({"source": source}))
    return len(found), isinstance(found, Pictures)


def labelled_text_corpus(settings: LabelledSettings) -> LabelledCorpus:
    """Texts of files, none of which is both trained on and judged by.

    Raises:
        DataError: what cannot be read, has fewer than two classes, or a label that training does not have.
    """
    test, tested = _read(settings.test)
    validation, validated = _read(settings.valid)
    train, report = _read(settings.train)
    assert report is not None
    train = without(train, (example for _, example in (*test, *validation)), report)
    labels = tuple(sorted({example.label for _, example in train}))
    if len(labels) < 2:
        raise DataError(f"{named(settings.train)}: at least two labels are needed, got {', '.join(labels)}")
    for part, path in ((validation, settings.valid), (test, settings.test)):
        for number, example in part:
            if example.label not in labels:
                raise DataError(f"{named(path or '')}, line {number}: the label {example.label!r} is not among those to train on")
    every = [*train, *validation, *test]
    classes = np.array([labels.index(example.label) for _, example in every], np.int64)
    ends = np.cumsum([len(train), len(validation), len(test)])
    rows = np.split(np.arange(len(every)), ends[:-1])
    if settings.valid is None:
        rest, kept = stratified(classes[rows[0]], settings.validation, settings.seed, MOST)
        rows = [rows[0][rest], rows[0][kept], rows[2]]
    return LabelledCorpus(
        tuple(example.text for _, example in every),
        classes,
        Inputs(labels=labels, inputs=TextInputs()),
        *rows,
        reports=tuple(one for one in (report, validated, tested) if one is not None),
        lines=tuple(number for number, _ in every),
    )


def encode_rows(corpus: LabelledCorpus, inputs: Inputs, tokenizers: Sequence[Tokenizer], settings: ImagesSettings | None) -> Rows:
    """What a model reads of a corpus.

    Args:
        corpus: of examples.
        inputs: as the run has them, which may have begun with another corpus.
        tokenizers: the one for texts.
        settings: how pictures vary.

    Raises:
        ArgumentError: the run has other classes, or reads something else.
    """
    check_inputs(inputs, corpus.inputs)
    match corpus.data, inputs.inputs:
        case Pictures() as pictures, PictureInputs() as how:
            return PictureRows(pictures, how, None if settings is None else settings.augmentation)
        case VectorSequences() as sequences, VectorInputs() as how:
            return VectorRows(sequences, how)
        case tuple() as texts, _:
            return TextRows(Sequences([tokenizers[0].encode(text) for text in texts]))
    raise AssertionError(corpus.inputs)


def drop_long(
    corpus: LabelledCorpus, lengths: np.ndarray, most: int, part: Literal["train", "validation"] = "train", *, report: int = 0
) -> LabelledCorpus:
    """The corpus without the texts of a part that are longer than so many tokens, which a report takes up.

    Args:
        corpus: of texts.
        lengths: tokens of each of them.
        most: tokens that one of the part may have.
        part: the part.
        report: the one on its file, by its place among the corpus' reports.

    Raises:
        DataError: none is left to train on.
    """
    rows: np.ndarray = getattr(corpus, part)
    longer = lengths[rows] > most
    for row in rows[longer]:
        corpus.reports[report].drop(OVER_LONG, corpus.lines[row])
    if part == "train" and longer.all():
        raise DataError(f"every one of the {len(longer):,} texts is longer than the maximum length of {most} tokens")
    return replace(corpus, **{part: rows[~longer]})


def drop_unreadable(corpus: LabelledCorpus, lengths: np.ndarray, longest: int | None) -> LabelledCorpus:
    """The corpus without what a model cannot read, which is said.

    Args:
        corpus: of examples.
        lengths: of each of them, in tokens, vectors or patches.
        longest: the most that the model can read; None where there is no limit.

    Raises:
        DataError: nothing is left to train on.
    """
    if longest is None:
        return corpus
    parts, said = {"train": corpus.train, "validation": corpus.validation, "test": corpus.test}, [*corpus.remarks]
    for name, rows in parts.items():
        parts[name] = rows[lengths[rows] <= longest]
        if len(long := rows[lengths[rows] > longest]):
            said.append(f"{name}: {describe_dropped(long, longest, corpus.lines)}")
    if not len(parts["train"]):
        raise DataError(f"every one of the {len(corpus.train):,} examples to train on is longer than the {longest} {PLACES}")
    return replace(corpus, **parts, remarks=tuple(said))


def describe_dropped(rows: Sequence[int] | np.ndarray, longest: int, lines: Sequence[int] = ()) -> str:
    """Which examples were left out because they are longer than a model can read, for a person.

    Args:
        rows: their numbers.
        longest: the most that the model can read.
        lines: where each of all the texts comes from; none of what is no text.
    """
    tally = LineTally()
    for row in rows:
        tally.add(lines[row] if lines else int(row))
    return f"{tally.count:,} dropped: longer than the {longest} {PLACES} ({tally.location('line' if lines else 'example')})"


def check_inputs(run: Inputs, here: Inputs) -> None:
    """Check that a run tells the classes of some examples, and reads what they are.

    Raises:
        ArgumentError: it does not.
    """
    if run.labels != here.labels:
        raise ArgumentError(f"the run tells {_some(run.labels)}, and these examples are of {_some(here.labels)}")
    one, other = run.inputs, here.inputs
    if one.kind != other.kind:
        raise ArgumentError(f"the run reads {one.kind}, and these are {other.kind}")
    if isinstance(one, VectorInputs) and isinstance(other, VectorInputs) and one.size != other.size:
        raise ArgumentError(f"the run reads vectors of {one.size} numbers, and these have {other.size}")
    if isinstance(one, PictureInputs) and isinstance(other, PictureInputs):
        mine, theirs = ((how.height, how.width, how.colours) for how in (one, other))
        if mine != theirs:
            pairs = (f"{height} x {width} pixels in {colours}" for height, width, colours in (mine, theirs))
            raise ArgumentError("the run reads pictures of {}, and these have {}".format(*pairs))


def _read(path: str | None) -> tuple[list[tuple[int, LabelledText]], ReadReport | None]:
    if path is None:
        return [], None
    report = ReadReport(named(path))
    return read_labelled(path, report), report


def _content(data: Data, row: int) -> bytes:
    match data:
        case Pictures():
            return data.pixels[row].tobytes()
        case VectorSequences():
            return data.vectors[row, : data.lengths[row]].tobytes()
        case _:
            return f"{data[row]}\n".encode()


def _only(settings: ImagesSettings, known: set[str], what: str) -> None:
    if wrong := [name for name in settings.of_pictures if name not in known]:
        raise ArgumentError(f"images.{wrong[0]} does not go with {what}")


def _some(labels: Sequence[str]) -> str:
    return f"{len(labels)} classes ({', '.join(labels[:3])}{', …' * (len(labels) > 3)})"
