"""Weights of heads at the same offset in other sentences.

They are the baseline that separates the effect of words from that of the offset.
"""

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
# Number of captions with which a sentence is compared.
NUMBER = 400


class Elsewhere(NamedTuple):
    """Weights between two words at one offset in other sentences.

    Args:
        mean: the mean for each layer and head, (layers, H).
        high: the 95th percentile for each layer and head, (layers, H).
        pairs: the number of word pairs.
    """

    mean: Tensor
    high: Tensor
    pairs: int


def captions(data: Path) -> list[str]:
    """Read the English captions of Multi30k's training set.

    Raises:
        DataError: the file is missing.
    """
    file = data / CAPTIONS
    if not file.is_file():
        raise DataError(
            f"{file} is missing: download it with `attent data multi30k --out {data / 'multi30k'}`, or set --data to "
            "its folder"
        )
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [line.strip() for line in lines if line.strip()]


def of_similar_length(encoder: Encoder, sentences: Sequence[str], length: int, number: int = NUMBER) -> list[Reading]:
    """Read the sentences with the nearest number of pieces: in longer sentences weights spread over more keys."""
    lengths = encoder.lengths(sentences)
    nearest = sorted(range(len(sentences)), key=lambda row: (abs(lengths[row] - length), row))[:number]
    return encoder.read([sentences[row] for row in sorted(nearest)])


def elsewhere(readings: Sequence[Reading], offset: int) -> Elsewhere:
    """Summarize each head's weights from a word to the word at an offset, without [CLS] and [SEP].

    Args:
        readings: the readings of other sentences.
        offset: the position of the key minus that of the query.

    Raises:
        DataError: no sentence has two words at this distance.
    """
    along = [reading.weights[:, :, 1:-1, 1:-1].diagonal(offset, -2, -1) for reading in readings]
    weights = torch.cat(along, -1)  # (layers, H, pairs)
    if not weights.shape[-1]:
        raise DataError(f"no sentence has two words {abs(offset)} pieces apart")
    return Elsewhere(weights.mean(-1), weights.quantile(0.95, -1), weights.shape[-1])
