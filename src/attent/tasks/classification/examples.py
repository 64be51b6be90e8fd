"""Batches of labelled examples, and their transfer to other processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attent.tasks.classification.arrays import VectorSequences
from attent.tasks.classification.inputs import Inputs, PictureInputs, VectorInputs
from attent.tasks.classification.pictures import Augmentation, Pictures, to_unit_range
from attent.tasks.classification.settings import ImagesSettings
from attent.text.batches import KEY_MULTIPLE, Examples, Sequences, TensorBatch, round_up

# Names of arrays in the folder of `save_examples`.
CLASSES, ROWS = "classes", "chosen"


@dataclass(frozen=True)
class LabelledBatch(TensorBatch):
    """Examples with their classes.

    Args:
        sequence: tokens (B, T), or vectors (B, T, D), right-padded.
        lengths: of the sequences, (B,).
        classes: (B,).
        tokens: the number of predictions: one an example.
    """

    sequence: Tensor
    lengths: Tensor
    classes: Tensor
    tokens: int

    def trim_padding(self, longest: int | None) -> LabelledBatch:
        """Cut padding beyond so many tokens or vectors, but none of an example."""
        if longest is None or self.sequence.shape[1] <= longest:
            return self
        return replace(self, sequence=self.sequence[:, : max(longest, int(self.lengths.max()))])


class TextRows:
    """Texts as tokens.

    Args:
        tokens: of each text.
    """

    def __init__(self, tokens: Sequences) -> None:
        self._tokens, self.lengths = tokens, tokens.lengths

    def read(self, rows: np.ndarray, epoch: int | None) -> Tensor:
        return torch.from_numpy(self._tokens.pad(rows, KEY_MULTIPLE).astype(np.int64))

    def arrays(self) -> dict[str, np.ndarray]:
        return {"tokens": self._tokens.tokens, "lengths": self._tokens.lengths}


class VectorRows:
    """Sequences of vectors.

    Args:
        sequences: all of them.
        inputs: make the model's input.
    """

    def __init__(self, sequences: VectorSequences, inputs: VectorInputs) -> None:
        self._vectors, self.lengths, self._inputs = sequences.vectors, sequences.lengths, inputs

    def read(self, rows: np.ndarray, epoch: int | None) -> Tensor:
        longest = min(round_up(int(self.lengths[rows].max(initial=1)), KEY_MULTIPLE), self._vectors.shape[1])
        return self._inputs(torch.from_numpy(self._vectors[rows, :longest]))

    def arrays(self) -> dict[str, np.ndarray]:
        return {"vectors": self._vectors, "lengths": self.lengths}


class PictureRows:
    """Pictures as patches.

    Args:
        pictures: all of them.
        inputs: make the model's input.
        augmentation: of each epoch, if any.
    """

    def __init__(self, pictures: Pictures, inputs: PictureInputs, augmentation: Augmentation | None = None) -> None:
        self._pixels, self._inputs, self._augmentation = pictures.pixels, inputs, augmentation
        self.lengths = np.full(len(pictures), inputs.length, np.int64)
        self._parameters: tuple[int, np.ndarray] | None = None

    def read(self, rows: np.ndarray, epoch: int | None) -> Tensor:
        pictures = torch.from_numpy(to_unit_range(self._pixels[rows]))
        if epoch is not None and self._augmentation and self._augmentation.is_active:
            if self._parameters is None or self._parameters[0] != epoch:
                self._parameters = epoch, self._augmentation.sample(len(self._pixels), epoch)
            pictures = self._augmentation(pictures, self._parameters[1][rows])
        return self._inputs(pictures)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"pixels": self._pixels}


# The rows of a corpus: their lengths in tokens or vectors, (N,); `read`, the model's input of some, (B, T) or (B, T,
# D), augmented unless the epoch is None; and `arrays`, by name, for another process.
Rows = TextRows | VectorRows | PictureRows


class LabelledExamples(Examples[LabelledBatch]):
    """Selected rows of a corpus with their classes.

    Args:
        rows: of the corpus.
        classes: the class of each row of it, (N,).
        selected: the rows of these examples, (M,); all unless given.
    """

    answer_name = "example"

    def __init__(self, rows: Rows, classes: np.ndarray, selected: np.ndarray | None = None) -> None:
        self.rows, self.all_classes = rows, classes
        self.selected = np.arange(len(classes)) if selected is None else selected

    def __len__(self) -> int:
        return len(self.selected)

    @property
    def classes(self) -> np.ndarray:
        """The class of each example, (M,)."""
        return self.all_classes[self.selected]

    def lengths(self) -> np.ndarray:
        return self.rows.lengths[self.selected]

    def token_count(self, rows: np.ndarray) -> int:
        return len(rows)

    def batch(self, rows: np.ndarray) -> LabelledBatch:
        return self._batch(rows, None)

    def augmented(self, rows: np.ndarray, seed: int, epoch: int) -> LabelledBatch:
        return self._batch(rows, epoch)

    def fingerprint(self) -> list[np.ndarray]:
        return [self.lengths(), self.classes]

    def _batch(self, rows: np.ndarray, epoch: int | None) -> LabelledBatch:
        selected = self.selected[rows]
        return LabelledBatch(
            sequence=self.rows.read(selected, epoch),
            lengths=torch.from_numpy(self.rows.lengths[selected].astype(np.int64)),
            classes=torch.from_numpy(self.all_classes[selected].astype(np.int64)),
            tokens=len(rows),
        )


def save_examples(examples: LabelledExamples, folder: Path) -> Path:
    """Write examples for another process to open by `open_examples`.

    Args:
        examples: to train on.
        folder: exists.

    Returns:
        The folder.
    """
    for name, numbers in {CLASSES: examples.all_classes, ROWS: examples.selected, **examples.rows.arrays()}.items():
        np.save(folder / f"{name}.npy", numbers)
    return folder


def open_examples(folder: Path, inputs: Inputs, settings: ImagesSettings | None) -> LabelledExamples:
    """Open the examples that another process wrote; both share their memory.

    Args:
        folder: of `save_examples`.
        inputs: of the run.
        settings: of the augmentation, if any.
    """
    arrays = {file.stem: np.load(file, mmap_mode="r") for file in folder.glob("*.npy")}
    match inputs.inputs:
        case PictureInputs() as reader:
            pictures = Pictures(arrays["pixels"], None, inputs.labels)
            rows = PictureRows(pictures, reader, None if settings is None else settings.augmentation)
        case VectorInputs() as reader:
            rows = VectorRows(VectorSequences(arrays["vectors"], arrays["lengths"], None, inputs.labels), reader)
        case _:
            rows = TextRows(
                Sequences([part.tolist() for part in np.split(arrays["tokens"], np.cumsum(arrays["lengths"])[:-1])])
            )
    return LabelledExamples(rows, arrays[CLASSES], arrays[ROWS])
