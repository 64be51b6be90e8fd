"""Preprocessing of examples to the inputs of a model; stored with the run as inputs.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import BaseModel, Field, ValidationError, model_validator
from torch import Tensor

from attent.errors import ArgumentError, DataError, first_fault
from attent.layers.patches import patch_grid, patches
from attent.tasks.classification.arrays import VectorSequences
from attent.tasks.classification.pictures import Colours, Pictures, to_unit_range
from attent.tasks.classification.settings import ImagesSettings

INPUTS = "inputs.json"
MAX_PATCHES = 64
# Pixels of a side.
MAX_SIDE = 2**14
# Numbers that are averaged at a time.
BLOCK_SIZE = 2**18


class PictureInputs(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Pictures as sequences of patches, with each channel standardized to mean 0 and variance 1.

    Args:
        kind: of the inputs in a file.
        height: in pixels.
        width: in pixels.
        colours: grey or rgb.
        patch: pixels of a patch along each side.
        mean: of each channel, where pixels are from 0 to 1.
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
        """Fit to the training rows of pictures.

        Raises:
            ArgumentError: the patch does not divide height and width, or none divides them.
        """
        height, width, channels = pictures.pixels.shape[1:]
        patch = settings.patch or suitable_patch(height, width)
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
        """Cut pictures (B, H, W, C) of float32 from 0 to 1 into patches (B, T, P·P·C)."""
        return patches((pictures - torch.tensor(self.mean)) / torch.tensor(self.deviation), self.patch)


class VectorInputs(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Sequences of vectors, with each feature standardized to mean 0 and variance 1.

    Args:
        kind: of the inputs in a file.
        mean: of each feature.
        deviation: the standard deviation of each feature.
    """

    kind: Literal["vectors"] = "vectors"
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, sequences: VectorSequences, rows: np.ndarray) -> VectorInputs:
        """Fit to the training rows of sequences."""
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
        kind: of the inputs in a file.
    """

    kind: Literal["texts"] = "texts"


class Inputs(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Preprocessing of examples, and the names of the classes.

    Args:
        labels: in the order of the model's outputs.
        inputs: make the model's input.
    """

    labels: tuple[str, ...]
    inputs: PictureInputs | VectorInputs | TextInputs = Field(discriminator="kind")

    @classmethod
    def read(cls, text: str) -> Inputs:
        """Parse an inputs.json.

        Raises:
            DataError: it is damaged.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise DataError(f"{INPUTS} is damaged: {first_fault(error)}") from error


def suitable_patch(height: int, width: int) -> int:
    """Return the smallest patch, of two pixels or more along each side, that divides a picture into 4 to 64.

    Raises:
        ArgumentError: height and width have no such divisor.
    """
    for patch in range(2, min(height, width) + 1):
        if height % patch == width % patch == 0 and 4 <= height * width // patch**2 <= MAX_PATCHES:
            return patch
    raise ArgumentError(
        f"no patch cuts {height} x {width} pixels into 4 to {MAX_PATCHES}: give another --size, or images.patch"
    )


def _check_moments(mean: tuple[float, ...], deviation: tuple[float, ...], count: int) -> None:
    if not len(mean) == len(deviation) == count or not all(value > 0 for value in deviation):
        raise ValueError(f"mean and deviation must be {count:,} numbers each, the deviations above 0")


def _moments(
    read: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, row_size: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation over all axes but the last; a deviation of 0 becomes 1.

    Args:
        read: returns the numbers of rows.
        rows: to average, a few at a time to save memory.
        row_size: the most numbers of a row.
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
