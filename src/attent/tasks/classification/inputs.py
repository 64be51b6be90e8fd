"""Preprocessing of examples for a model, stored with the run as inputs.json; and batches of examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import BaseModel, Field, ValidationError, model_validator
from torch import Tensor

from attent.errors import ArgumentError, DataError, reraise
from attent.layers.patches import patch_grid, patches
from attent.tasks.classification.arrays import VectorSequences
from attent.tasks.classification.pictures import Augmentation, Colours, Pictures, to_unit_range
from attent.tasks.classification.settings import ImagesSettings
from attent.text.batches import KEY_MULTIPLE, Examples, Sequences, TensorBatch, round_up
from attent.text.tokenizer import Tokenizer

INPUTS = "inputs.json"
# The maximum height and width in pixels.
MAX_SIDE = 2**14
# The number of values that are averaged at a time.
BLOCK_SIZE = 2**18


class PictureInputs(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Pictures as sequences of patches, with each channel standardized to mean 0 and variance 1.

    Args:
        kind: the kind of inputs, as written in the file.
        height: the height in pixels.
        width: the width in pixels.
        colours: grey or rgb.
        patch: the side of a patch in pixels.
        mean: the mean of each channel, for pixels from 0 to 1.
        deviation: the standard deviation of each channel.
    """

    kind: Literal["pictures"] = "pictures"
    height: Annotated[int, Field(le=MAX_SIDE)]
    width: Annotated[int, Field(le=MAX_SIDE)]
    colours: Colours
    patch: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, pictures: Pictures, rows: np.ndarray, settings: ImagesSettings) -> PictureInputs:
        """Fit the preprocessing to the training rows of pictures.

        Raises:
            ArgumentError: the patch size does not divide height and width, or there is no suitable one.
        """
        height, width, channels = pictures.pixels.shape[1:]
        patch = settings.patch or suitable_patch(height, width, settings.max_patches)
        patch_grid(height, width, patch)
        mean, deviation = _moments(lambda part: to_unit_range(pictures.pixels[part]), rows, height * width * channels)
        colours: Colours = "grey" if channels == 1 else "rgb"
        return cls(height=height, width=width, colours=colours, patch=patch, mean=mean, deviation=deviation)

    @model_validator(mode="after")
    def _fit_together(self) -> PictureInputs:
        patch_grid(self.height, self.width, self.patch)
        _check_moments(self.mean, self.deviation, 1 if self.colours == "grey" else 3)
        return self

    @property
    def size(self) -> int:
        """The number of features of each vector."""
        return self.patch**2 * len(self.mean)

    @property
    def length(self) -> int:
        """The number of patches of a picture."""
        down, across = patch_grid(self.height, self.width, self.patch)
        return down * across

    def __call__(self, pictures: Tensor) -> Tensor:
        """Cut pictures (B, H, W, C), float32 from 0 to 1, into standardized patches (B, T, P·P·C)."""
        return patches((pictures - torch.tensor(self.mean)) / torch.tensor(self.deviation), self.patch)


class VectorInputs(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Sequences of vectors, with each feature standardized to mean 0 and variance 1.

    Args:
        kind: the kind of inputs, as written in the file.
        mean: the mean of each feature.
        deviation: the standard deviation of each feature.
    """

    kind: Literal["vectors"] = "vectors"
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, sequences: VectorSequences, rows: np.ndarray) -> VectorInputs:
        """Fit the preprocessing to the training rows of sequences."""
        vectors, lengths = sequences.vectors, sequences.lengths
        positions = np.arange(vectors.shape[1])
        mean, deviation = _moments(lambda part: vectors[part][positions < lengths[part, None]], rows, vectors[0].size)
        return cls(mean=mean, deviation=deviation)

    @model_validator(mode="after")
    def _fit_together(self) -> VectorInputs:
        _check_moments(self.mean, self.deviation, len(self.mean))
        return self

    @property
    def size(self) -> int:
        """The number of features of each vector."""
        return len(self.mean)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Standardize vectors (B, T, D)."""
        return (vectors - torch.tensor(self.mean)) / torch.tensor(self.deviation)


class TextInputs(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Texts as the tokens of the run's tokenizer.

    Args:
        kind: the kind of inputs, as written in the file.
    """

    kind: Literal["texts"] = "texts"


class Inputs(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Preprocessing of examples, and the names of the classes.

    Args:
        labels: the names of the classes, in the order of the model's outputs.
        inputs: the preprocessing.
    """

    labels: tuple[str, ...]
    inputs: PictureInputs | VectorInputs | TextInputs = Field(discriminator="kind")

    @classmethod
    def read(cls, text: str) -> Inputs:
        """Parse an inputs.json.

        Raises:
            DataError: it is damaged.
        """
        with reraise(DataError, f"{INPUTS} is damaged", ValidationError):
            return cls.model_validate_json(text)


def suitable_patch(height: int, width: int, maximum: int) -> int:
    """Return the smallest patch size, at least 2 pixels, that divides a picture into 4 to `maximum` patches.

    Raises:
        ArgumentError: height and width have no such divisor.
    """
    for patch in range(2, min(height, width) + 1):
        if height % patch == width % patch == 0 and 4 <= height * width // patch**2 <= maximum:
            return patch
    raise ArgumentError(
        f"no patch size cuts {height} x {width} pixels into 4 to {maximum} patches: give another --size, or "
        "images.patch"
    )


def _check_moments(mean: tuple[float, ...], deviation: tuple[float, ...], count: int) -> None:
    if not len(mean) == len(deviation) == count or not all(value > 0 for value in deviation):
        raise ValueError(f"mean and deviation must be {count:,} numbers each, with deviations above 0")


def _moments(
    read: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, row_size: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation over all axes but the last; a deviation of 0 becomes 1.

    Args:
        read: a function that returns the numbers of rows.
        rows: the rows to average; they are read a few at a time to save memory.
        row_size: the maximum size of a row, in numbers.
    """

    def blocks() -> Iterator[np.ndarray]:
        for part in np.array_split(rows, max(1, len(rows) * row_size // BLOCK_SIZE)):
            numbers = read(part)
            yield numbers.reshape(-1, numbers.shape[-1]).astype(np.float64)

    # differences from the first vector, so that a constant feature has a deviation of exactly 0
    first = next(blocks())[0]
    count = sum(map(len, blocks()))
    mean = sum((numbers - first).sum(0) for numbers in blocks()) / count
    deviation = np.sqrt(sum(np.square(numbers - first - mean).sum(0) for numbers in blocks()) / count)
    return tuple((first + mean).tolist()), tuple(np.where(deviation > 0, deviation, 1.0).tolist())


@dataclass(frozen=True)
class LabelledBatch(TensorBatch):
    """Examples with their classes.

    Args:
        sequence: tokens (B, T), or vectors (B, T, D), right-padded.
        lengths: the lengths of the sequences, (B,).
        classes: the class of each example, (B,).
        tokens: the number of predictions: one per example.
    """

    sequence: Tensor
    lengths: Tensor
    classes: Tensor
    tokens: int

    def trim_padding(self, longest: int | None) -> LabelledBatch:
        """Cut padding beyond `longest` tokens or vectors; examples are not shortened."""
        if longest is None or self.sequence.shape[1] <= longest:
            return self
        return replace(self, sequence=self.sequence[:, : max(longest, int(self.lengths.max()))])


class TextRows:
    """Texts as tokens.

    Args:
        tokens: the tokens of each text.
    """

    def __init__(self, tokens: Sequences) -> None:
        self._tokens, self.lengths = tokens, tokens.lengths

    def read(self, rows: np.ndarray, epoch: int | None) -> Tensor:
        return torch.from_numpy(self._tokens.pad(rows, KEY_MULTIPLE).astype(np.int64))


class VectorRows:
    """Sequences of vectors.

    Args:
        sequences: all sequences.
        inputs: the preprocessing.
    """

    def __init__(self, sequences: VectorSequences, inputs: VectorInputs) -> None:
        self._vectors, self.lengths, self._inputs = sequences.vectors, sequences.lengths, inputs

    def read(self, rows: np.ndarray, epoch: int | None) -> Tensor:
        longest = min(round_up(int(self.lengths[rows].max(initial=1)), KEY_MULTIPLE), self._vectors.shape[1])
        return self._inputs(torch.from_numpy(self._vectors[rows, :longest]))


class PictureRows:
    """Pictures as patches.

    Args:
        pictures: all pictures.
        inputs: the preprocessing.
        augmentation: the augmentation in training, if any.
    """

    def __init__(self, pictures: Pictures, inputs: PictureInputs, augmentation: Augmentation | None = None) -> None:
        self.pixels, self._inputs, self._augmentation = pictures.pixels, inputs, augmentation
        self.lengths = np.full(len(pictures), inputs.length, np.int64)
        self._parameters: tuple[int, np.ndarray] | None = None

    def read(self, rows: np.ndarray, epoch: int | None) -> Tensor:
        pictures = torch.from_numpy(to_unit_range(self.pixels[rows]))
        if epoch is not None and self._augmentation and self._augmentation.is_active:
            if self._parameters is None or self._parameters[0] != epoch:
                self._parameters = epoch, self._augmentation.sample(len(self.pixels), epoch)
            pictures = self._augmentation(pictures, self._parameters[1][rows])
        return self._inputs(pictures)


# The rows of a corpus: `lengths` in tokens or vectors, (N,); `read`, which returns the model's input for some rows,
# (B, T) or (B, T, D), augmented unless the epoch is None.
Rows = TextRows | VectorRows | PictureRows
Data = Pictures | VectorSequences | tuple[str, ...]


def encode_rows(
    data: Data, inputs: Inputs, tokenizer: Tokenizer | None, augmentation: Augmentation | None = None
) -> Rows:
    """Prepare examples for a run's model.

    Args:
        data: the examples, of the kind that the run reads.
        inputs: the run's preprocessing.
        tokenizer: the run's tokenizer, for texts.
        augmentation: the augmentation of pictures, if any.
    """
    match data, inputs.inputs:
        case Pictures(), PictureInputs() as reader:
            return PictureRows(data, reader, augmentation)
        case VectorSequences(), VectorInputs() as reader:
            return VectorRows(data, reader)
    assert tokenizer is not None and isinstance(data, tuple)
    return TextRows(Sequences([tokenizer.encode(text) for text in data]))


class LabelledExamples(Examples[LabelledBatch]):
    """Selected rows of a corpus with their classes.

    Args:
        rows: the rows of the corpus.
        classes: the class of each row, (N,).
        selected: the indices of the selected rows, (M,); all by default.
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
