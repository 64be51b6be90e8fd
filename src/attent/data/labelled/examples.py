"""Labelled examples as batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from attent.data.batches import KEY_MULTIPLE, Examples, Sequences, round_up
from attent.data.labelled.arrays import VectorSequences
from attent.data.labelled.augmentation import Augmentation
from attent.data.labelled.inputs import PictureInputs, VectorInputs
from attent.data.labelled.pictures import Pictures, shares


@dataclass(frozen=True)
class LabelledBatch:
    """Examples of one update.

    Args:
        sequence: tokens (B, T), or vectors (B, T, D), right-padded.
        lengths: how many of the T are real, (B,).
        classes: (B,).
        tokens: how many answers count: as many as there are examples.
    """

    sequence: Tensor
    lengths: Tensor
    classes: Tensor
    tokens: int

    def to(self, device: torch.device | str) -> LabelledBatch:
        """The same batch on another device."""
        fields = (self.sequence, self.lengths, self.classes)
        return LabelledBatch(*(field.to(device, non_blocking=True) for field in fields), tokens=self.tokens)

    def trim_padding(self, longest: int | None) -> LabelledBatch:
        """The same batch, filled up no further than to so many places, where its examples have no more."""
        if longest is None or self.sequence.shape[1] <= longest:
            return self
        return replace(self, sequence=self.sequence[:, : max(longest, int(self.lengths.max()))])

    def zero_weight(self) -> LabelledBatch:
        """The same examples, of which no answer counts."""
        return replace(self, tokens=0)


class Rows(Protocol):
    """What examples are read from."""

    @property
    def lengths(self) -> np.ndarray:
        """How many tokens or vectors each row has, (N,)."""
        ...

    def read(self, rows: np.ndarray, epoch: int | None) -> Tensor:
        """These rows as a model reads them, (B, T) or (B, T, D); as they are, or as they vary in an epoch."""
        ...

    def arrays(self) -> dict[str, np.ndarray]:
        """What they are made of, by name: for another process."""
        ...


class TextRows:
    """Texts as tokens.

    Args:
        tokens: of each text.
    """

    def __init__(self, tokens: Sequences) -> None:
        self._tokens = tokens

    @property
    def lengths(self) -> np.ndarray:
        return self._tokens.lengths

    def read(self, rows: np.ndarray, epoch: int | None) -> Tensor:
        return torch.from_numpy(self._tokens.pad(rows, KEY_MULTIPLE).astype(np.int64))

    def arrays(self) -> dict[str, np.ndarray]:
        return {"tokens": self._tokens.tokens, "lengths": self._tokens.lengths}


class VectorRows:
    """Sequences of vectors.

    Args:
        sequences: all of them.
        inputs: how they become what the model reads.
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
        inputs: how they become what the model reads.
        augmentation: how they vary from epoch to epoch; not at all unless given.
    """

    def __init__(self, pictures: Pictures, inputs: PictureInputs, augmentation: Augmentation | None = None) -> None:
        self._pixels, self._inputs, self._augmentation = pictures.pixels, inputs, augmentation
        self.lengths = np.full(len(pictures), inputs.length, np.int64)
        self._drawn: tuple[int, np.ndarray] | None = None

    def read(self, rows: np.ndarray, epoch: int | None) -> Tensor:
        pictures = torch.from_numpy(shares(self._pixels[rows]))
        if epoch is not None and self._augmentation and self._augmentation.changes:
            if self._drawn is None or self._drawn[0] != epoch:
                self._drawn = epoch, self._augmentation.drawn(len(self._pixels), epoch)
            pictures = self._augmentation(pictures, self._drawn[1][rows])
        return self._inputs(pictures)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"pixels": self._pixels}


class LabelledExamples(Examples[LabelledBatch]):
    """Some rows of a corpus with their classes, from which batches are cut.

    Args:
        rows: what the corpus is read from.
        classes: the class of each row of it, (N,).
        chosen: which rows these examples are, (M,); all unless given.
    """

    answer_name = "example"

    def __init__(self, rows: Rows, classes: np.ndarray, chosen: np.ndarray | None = None) -> None:
        self.rows, self.all_classes = rows, classes
        self.chosen = np.arange(len(classes)) if chosen is None else chosen

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def classes(self) -> np.ndarray:
        """The class of each example, (M,)."""
        return self.all_classes[self.chosen]

    def lengths(self) -> np.ndarray:
        return self.rows.lengths[self.chosen]

    def token_count(self, rows: np.ndarray) -> int:
        return len(rows)

    def batch(self, rows: np.ndarray) -> LabelledBatch:
        return self._batch(rows, None)

    def augmented(self, rows: np.ndarray, seed: int, epoch: int) -> LabelledBatch:
        return self._batch(rows, epoch)

    def fingerprint(self) -> list[np.ndarray]:
        return [self.lengths(), self.classes]

    def _batch(self, rows: np.ndarray, epoch: int | None) -> LabelledBatch:
        places = self.chosen[rows]
        return LabelledBatch(
            sequence=self.rows.read(places, epoch),
            lengths=torch.from_numpy(self.rows.lengths[places].astype(np.int64)),
            classes=torch.from_numpy(self.all_classes[places].astype(np.int64)),
            tokens=len(rows),
        )
