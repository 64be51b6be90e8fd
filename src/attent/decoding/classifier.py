"""A trained model, ready to tell the class of pictures, of sequences of vectors or of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.data.batches import BatchSize, Sequences
from attent.data.labelled import arrays, pictures
from attent.data.labelled.arrays import VectorSequences
from attent.data.labelled.corpus import PLACES, Data
from attent.data.labelled.examples import LabelledExamples, PictureRows, Rows, TextRows, VectorRows
from attent.data.labelled.inputs import INPUTS, Inputs, PictureInputs, TextInputs, VectorInputs
from attent.data.labelled.pictures import Pictures
from attent.data.tokenizer import Tokenizer
from attent.errors import ArgumentError, DataError, RunError
from attent.models.encoder import EncoderModel
from attent.runs.folder import read

# Examples whose classes are told side by side.
BATCH = 128


@dataclass(frozen=True)
class Prediction:
    """The likeliest classes of an example.

    Args:
        labels: their names, the likeliest first.
        probabilities: of each, which sum to 1 over all classes.
    """

    labels: tuple[str, ...]
    probabilities: tuple[float, ...]

    @property
    def label(self) -> str:
        """The likeliest."""
        return self.labels[0]


# The name of earlier versions.
Told = Prediction


class Classifier:
    """Tells classes with a model.

    Args:
        model: an encoder with a vector in front; put into evaluation mode.
        inputs: the names of the classes, and what the model reads.
        tokenizer: for texts; None where it reads something else.

    Raises:
        ArgumentError: these are not the model's.
    """

    def __init__(self, model: EncoderModel, inputs: Inputs, tokenizer: Tokenizer | None = None) -> None:
        model.eval()
        reads, classes = ("tokens" if isinstance(inputs.inputs, TextInputs) else "vectors"), model.to_logits.out_features
        if reads != model.settings.input or (tokenizer is None) is (reads == "tokens"):
            raise ArgumentError(f"{INPUTS} says that the model reads {inputs.inputs.kind}, and its settings and tokenizers say otherwise")
        if not isinstance(inputs.inputs, TextInputs) and inputs.inputs.size != getattr(model.embedding, "size", None):
            raise ArgumentError(f"{INPUTS} says that the model reads vectors of {inputs.inputs.size} numbers, and it reads others")
        if len(inputs.labels) != classes:
            raise ArgumentError(f"{INPUTS} names {len(inputs.labels)} labels, and the model tells {classes} classes")
        self.model, self.inputs, self.tokenizer = model, inputs, tokenizer
        self.device = next(model.parameters()).device

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the model's outputs."""
        return self.inputs.labels

    @property
    def longest(self) -> int | None:
        """The most tokens, vectors or patches that an example may have; None where there is no limit."""
        return self.model.longest

    @overload
    def classify(self, examples: str | Path, *, best: int = ...) -> Prediction: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def classify(self, examples: Any, *, best: int = ...) -> list[Prediction]: ...
    def classify(self, examples: Any, *, best: int = 1) -> Prediction | list[Prediction]:
        """The likeliest classes of each example.

        Args:
            examples: texts; or files of pictures, or pictures (N, H, W) or (N, H, W, C), bytes or floats from 0 to 1; or sequences of
                vectors (N, T, D), or several of (T, D). A single text or file, not in a list, gives a single result.
            best: how many classes of each; all of them where there are fewer.

        Raises:
            ArgumentError: these are not what the model reads.
            DataError: a picture cannot be read, numbers are not such as a file may have, or an example is longer than the model can read.
        """
        if isinstance(examples, str | Path):
            return self.classify([examples], best=best)[0]
        if best < 1:
            raise ArgumentError(f"best must be at least 1, got {best}")
        data = self.data(examples)
        if not len(data):
            return []
        chances, which = self.log_probs(self.examples(data)).exp().topk(min(best, len(self.labels)), dim=-1)
        return [
            Prediction(tuple(self.labels[place] for place in row), tuple(shares))
            for row, shares in zip(which.tolist(), chances.tolist(), strict=True)
        ]

    @torch.no_grad()
    def log_probs(self, examples: LabelledExamples, size: BatchSize | None = None) -> Tensor:
        """The logarithms of all classes' probabilities, (N, C), float32.

        Args:
            examples: whose classes are not looked at.
            size: how many are told side by side.

        Raises:
            DataError: one is longer than the model can read.
        """
        if len(long := self.too_long(examples)):
            self._fits(int(long[0]), int(examples.lengths()[long[0]]))
        self.model.eval()
        found = torch.zeros(len(examples), len(self.labels))
        for rows, batch in examples.sorted_batches(size or BatchSize(pairs=BATCH)):
            batch = batch.trim_padding(self.longest).to(self.device)
            logits = self.model.output(self.model(batch.sequence, batch.lengths)[:, 0])
            found[torch.from_numpy(rows)] = logits.float().log_softmax(-1).cpu()
        return found

    @torch.no_grad()
    def maps(self, examples: Any, row: int = 0) -> dict[str, AttentionMap]:
        """The attention map of each layer while the model reads one example, the first layer first, (1, H, 1 + T, 1 + T).

        The first query and the first key are the vector in front.

        Args:
            examples: those that `classify` takes.
            row: which of them, from 0.

        Raises:
            ArgumentError, DataError: as `classify`, or there is no such example, or it is longer than the model can read.
        """
        rows = self._rows(self.data(examples))
        if not 0 <= row < len(rows.lengths):
            raise ArgumentError(f"there are {len(rows.lengths)} examples, numbered from 0, got row {row}")
        length = self._fits(row, int(rows.lengths[row]))
        sequence = rows.read(np.array([row]), None)[:, :length]
        with watch(self.model) as seen:
            self.model(sequence.to(self.device), torch.tensor([length], device=self.device))
        return dict(seen.items())

    def examples(self, data: Data, classes: np.ndarray | None = None, chosen: np.ndarray | None = None) -> LabelledExamples:
        """Examples as the model reads them.

        Args:
            data: what it reads.
            classes: of each of them, (N,); 0 unless given.
            chosen: which of them, (M,); all unless given.
        """
        return LabelledExamples(self._rows(data), np.zeros(len(data), np.int64) if classes is None else classes, chosen)

    def too_long(self, examples: LabelledExamples) -> np.ndarray:
        """Which of these examples are longer than the model can read, from 0."""
        return np.flatnonzero(examples.lengths() > (np.inf if self.longest is None else self.longest))

    def data(self, examples: Any) -> Data:
        """What people have as what is known here; errors as for `classify`."""
        if isinstance(examples, str | Path):
            examples = [examples]
        match self.inputs.inputs:
            case TextInputs():
                return _texts(examples)
            case PictureInputs() as how:
                return _pictures(examples, how)
            case VectorInputs() as how:
                return _vectors(examples, how)

    def _fits(self, number: int, length: int) -> int:
        if self.longest is not None and length > self.longest:
            raise DataError(f"example {number} has a length of {length}, more than the {self.longest} {PLACES}")
        return length

    def _rows(self, data: Data) -> Rows:
        match data, self.inputs.inputs:
            case Pictures(), PictureInputs() as how:
                return PictureRows(data, how)
            case VectorSequences(), VectorInputs() as how:
                return VectorRows(data, how)
        assert self.tokenizer is not None and isinstance(data, tuple)
        return TextRows(Sequences([self.tokenizer.encode(text) for text in data]))


def load(path: Path | str, device: torch.device | str = "cpu", *, trust_code: bool = False) -> Classifier:
    """The classifier that a run folder holds.

    Raises:
        RunError: the folder is missing, damaged, or written by a newer version, or holds something else.
    """
    run = read(path, "classify", trust_code)
    if INPUTS not in run.files:
        raise RunError(f"{path} is damaged: it has no {INPUTS}")
    try:
        return Classifier(run.model.to(device), Inputs.read(run.files[INPUTS]), run.tokenizers.get("text"))
    except (ArgumentError, DataError) as error:
        raise RunError(f"{path}: {error}") from error


def _texts(examples: Any) -> tuple[str, ...]:
    if not isinstance(examples, Sequence) or not all(isinstance(text, str) for text in examples):
        raise ArgumentError(f"the run reads texts: give a list of them, got {_called(examples)}")
    return tuple(examples)


def _pictures(examples: Any, how: PictureInputs) -> Pictures:
    size = (how.height, how.width)
    if isinstance(examples, Pictures):
        pixels = examples.pixels
    elif isinstance(examples, np.ndarray | Tensor):
        pixels = arrays.pixels(np.asarray(examples), "pictures")
    elif isinstance(examples, Sequence) and all(isinstance(file, str | Path) for file in examples):
        files = [Path(file) for file in examples]
        pixels = pictures.read(files, size, how.colours) if files else np.zeros((0, *size, len(how.mean)), np.uint8)
    else:
        raise ArgumentError(f"the run reads pictures: give a list of files, or an array, got {_called(examples)}")
    expected = (*size, len(how.mean))
    if pixels.shape[1:] != expected:
        raise ArgumentError(f"the run reads pictures (H, W, C) = {expected}, got {pixels.shape[1:]}")
    return Pictures(pixels, None, ())


def _vectors(examples: Any, how: VectorInputs) -> VectorSequences:
    if isinstance(examples, VectorSequences):
        found = examples
    else:
        try:
            each = [np.asarray(sequence, np.float32) for sequence in examples]
        except (TypeError, ValueError):
            raise ArgumentError(f"the run reads sequences of vectors: give an array (N, T, D), got {_called(examples)}") from None
        if any(sequence.ndim != 2 or not len(sequence) for sequence in each):
            raise ArgumentError(f"each sequence of vectors must be (T, D), got {next(s.shape for s in each if s.ndim != 2 or not len(s))}")
        if len({sequence.shape[1] for sequence in each}) > 1:
            raise ArgumentError(f"vectors must be equally wide, got {sorted({sequence.shape[1] for sequence in each})}")
        lengths = np.array([len(sequence) for sequence in each], np.int64)
        vectors = np.zeros((len(each), lengths.max(initial=1), each[0].shape[1] if each else how.size), np.float32)
        for row, sequence in enumerate(each):
            vectors[row, : len(sequence)] = sequence
        found = VectorSequences(arrays.finite(vectors, ""), lengths, None, ())
    if found.vectors.shape[2] != how.size:
        raise ArgumentError(f"the run reads vectors of {how.size} numbers, and these have {found.vectors.shape[2]}")
    return found


def _called(examples: Any) -> str:
    shape = getattr(examples, "shape", None)
    return f"{type(examples).__name__} {tuple(shape)}" if shape is not None else repr(examples)[:60]
