"""What a model reads of an example, and how that is made of what people have: kept with the run, as inputs.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from attent.data.labelled.arrays import VectorSequences
from attent.data.labelled.pictures import Colours, Pictures, shares
from attent.data.labelled.settings import ImagesSettings
from attent.errors import ArgumentError, DataError, first_fault
from attent.layers.patches import patch_grid, patches

INPUTS = "inputs.json"
MOST_PATCHES = 64
# Pixels of a side.
LONGEST_SIDE = 2**14
# So many numbers are averaged at a time.
AT_ONCE = 2**18


class PictureInputs(BaseModel):
    """Pictures as sequences of patches, each pixel's channels brought to mean 0 and variance 1.

    Args:
        kind: tells these from others in a file.
        height: in pixels.
        width: in pixels.
        colours: grey or rgb.
        patch: pixels of a patch along each side.
        mean: of each channel, where pixels are from 0 to 1.
        deviation: the standard deviation of each channel.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["pictures"] = "pictures"
    height: Annotated[int, Field(le=LONGEST_SIDE)]
    width: Annotated[int, Field(le=LONGEST_SIDE)]
    colours: Colours
    patch: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, pictures: Pictures, rows: np.ndarray, settings: ImagesSettings) -> PictureInputs:
        """Those that suit pictures of which these rows are trained on.

        Raises:
            ArgumentError: the patch does not divide height and width, or none can be found that does.
        """
        height, width, channels = pictures.pixels.shape[1:]
        patch = settings.patch or suitable(height, width)
        patch_grid(height, width, patch)
        mean, deviation = _moments(lambda some: shares(pictures.pixels[some]), rows, height * width * channels)
        colours: Colours = "grey" if channels == 1 else "rgb"
        return cls(height=height, width=width, colours=colours, patch=patch, mean=mean, deviation=deviation)

    @model_validator(mode="after")
    def _fit_together(self) -> PictureInputs:
        patch_grid(self.height, self.width, self.patch)
        _check_moments(self.mean, self.deviation, 1 if self.colours == "grey" else 3)
        return self

    @property
    def size(self) -> int:
        """How many numbers each vector has."""
        return self.patch**2 * len(self.mean)

    @property
    def length(self) -> int:
        """How many patches a picture has."""
        down, across = patch_grid(self.height, self.width, self.patch)
        return down * across

    def __call__(self, pictures: Tensor) -> Tensor:
        """Pictures (B, H, W, C) of float32 from 0 to 1 → patches (B, T, P·P·C)."""
        return patches((pictures - torch.tensor(self.mean)) / torch.tensor(self.deviation), self.patch)


class VectorInputs(BaseModel):
    """Sequences of vectors, each of their numbers brought to mean 0 and variance 1.

    Args:
        kind: tells these from others in a file.
        mean: of each number.
        deviation: the standard deviation of each number.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["vectors"] = "vectors"
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, sequences: VectorSequences, rows: np.ndarray) -> VectorInputs:
        """Those that suit sequences of which these rows are trained on."""
        vectors, lengths = sequences.vectors, sequences.lengths
        places = np.arange(vectors.shape[1])
        mean, deviation = _moments(lambda some: vectors[some][places < lengths[some, None]], rows, vectors[0].size)
        return cls(mean=mean, deviation=deviation)

    @model_validator(mode="after")
    def _fit_together(self) -> VectorInputs:
        _check_moments(self.mean, self.deviation, len(self.mean))
        return self

    @property
    def size(self) -> int:
        """How many numbers each vector has."""
        return len(self.mean)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Vectors (B, T, D) → the same, standardised."""
        return (vectors - torch.tensor(self.mean)) / torch.tensor(self.deviation)


class TextInputs(BaseModel):
    """Texts as the tokens of the run's tokenizer.

    Args:
        kind: tells these from others in a file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["texts"] = "texts"


class Inputs(BaseModel):
    """What a model reads, and the names of the classes that it tells.

    Args:
        labels: in the order of the model's outputs.
        inputs: how examples become what the model reads.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    labels: tuple[str, ...]
    inputs: PictureInputs | VectorInputs | TextInputs = Field(discriminator="kind")

    @classmethod
    def read(cls, text: str) -> Inputs:
        """What an inputs.json holds.

        Raises:
            DataError: it is damaged.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise DataError(f"{INPUTS} is damaged: {first_fault(error)}") from error


def suitable(height: int, width: int) -> int:
    """The smallest patch of two pixels or more along each side of which a picture has 64 at most, and 4 at least.

    Raises:
        ArgumentError: height and width have no such divisor.
    """
    for patch in range(2, min(height, width) + 1):
        if height % patch == width % patch == 0 and 4 <= height * width // patch**2 <= MOST_PATCHES:
            return patch
    raise ArgumentError(f"no patch cuts {height} x {width} pixels into 4 to {MOST_PATCHES}: give another --size, or images.patch")


def _check_moments(mean: tuple[float, ...], deviation: tuple[float, ...], count: int) -> None:
    if not len(mean) == len(deviation) == count or not all(value > 0 for value in deviation):
        raise ValueError(f"mean and deviation must be {count:,} numbers each, the deviations above 0")


def _moments(read: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, each: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation over all axes but the last; 1 for what never varies.

    Args:
        read: the numbers of some rows.
        rows: all of them; a few are read at a time, so that little memory is needed beside them.
        each: how many numbers a row has at most.
    """

    def flat() -> Iterator[np.ndarray]:
        for some in np.array_split(rows, max(1, len(rows) * each // AT_ONCE)):
            numbers = read(some)
            yield numbers.reshape(-1, numbers.shape[-1]).astype(np.float64)

    # as differences from one of them, so that what never varies is found to
    first = next(flat())[0]
    count = sum(map(len, flat()))
    mean = sum((numbers - first).sum(0) for numbers in flat()) / count
    deviation = np.sqrt(sum(np.square(numbers - first - mean).sum(0) for numbers in flat()) / count)
    return tuple((first + mean).tolist()), tuple(np.where(deviation > 0, deviation, 1.0).tolist())
