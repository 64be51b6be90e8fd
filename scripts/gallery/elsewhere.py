"""What heads give to the same offset elsewhere, where other words stand: whether a head is about the words or about the offset."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from attent.errors import DataError
from gallery.encoder import Encoder, Reading

CAPTIONS = "multi30k/train.en.gz"
# Captions that a sentence is held against.
NUMBER = 400


class Elsewhere(NamedTuple):
    """Weights between two words of other sentences at one offset.

    Args:
        mean: of each layer and head, (layers, H).
        high: what one pair of twenty is above, (layers, H).
        pairs: how many pairs of words there are.
    """

    mean: Tensor
    high: Tensor
    pairs: int


def captions(data: Path) -> list[str]:
    """The English captions of Multi30k's training part.

    Raises:
        DataError: they are not there.
    """
    file = data / CAPTIONS
    if not file.is_file():
        raise DataError(f"{file} is not there: `attent data multi30k --out {data / 'multi30k'}` fetches it, --data names another folder")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [line.strip() for line in lines if line.strip()]


def alike(encoder: Encoder, sentences: Sequence[str], length: int, number: int = NUMBER) -> list[Reading]:
    """So many sentences whose number of pieces is nearest, read. In longer sentences a weight is spread over more."""
    lengths = encoder.lengths(sentences)
    nearest = sorted(range(len(sentences)), key=lambda row: (abs(lengths[row] - length), row))[:number]
    return encoder.read([sentences[row] for row in sorted(nearest)])


def elsewhere(readings: Sequence[Reading], offset: int) -> Elsewhere:
    """What each head gives from one word to the word at an offset, [CLS] and [SEP] left out.

    Args:
        readings: of other sentences.
        offset: the key's place less the query's.

    Raises:
        DataError: no sentence has two words so far apart.
    """
    along = [reading.weights[:, :, 1:-1, 1:-1].diagonal(offset, -2, -1) for reading in readings]
    weights = torch.cat(along, -1)  # (layers, H, pairs)
    if not weights.shape[-1]:
        raise DataError(f"no sentence has two words {abs(offset)} pieces apart")
    return Elsewhere(weights.mean(-1), weights.quantile(0.95, -1), weights.shape[-1])
