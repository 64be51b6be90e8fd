"""Corpora to measure training on: Multi30k, pairs in a file, and synthetic sentences as long as captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from comparison.length import MULTI30K, read_captions

from attent.errors import ArgumentError, DataError
from attent.text import tokenizers
from attent.text.batches import Bitext
from attent.text.readers import read_pairs
from attent.text.text import Pair, ReadReport
from attent.text.tokenizer import SPECIALS, Tokenizer

# The number of pairs of Multi30k, and their mean length in tokens with a vocabulary of 10,000.
PAIRS, LENGTH = 29_000, 14.0
# Standard deviation of the logarithm of lengths, and of the logarithm of target over source.
SPREAD, RATIO = 0.3, 0.12
# The frequency of the word of rank n is proportional to n to the power of minus this (Zipf 1949).
ZIPF = 1.0


def load_pairs(path: Path | None, pieces: int) -> tuple[Sequence[Pair], Tokenizer, str]:
    """Return pairs, the joint tokenizer of both sides, and the name of the corpus.

    Args:
        path: the folder of Multi30k, or a file of pairs as for `attent train --train`; synthetic sentences by default.
        pieces: the vocabulary size, in BPE pieces or in words of synthetic sentences.

    Raises:
        ArgumentError: the folder is not Multi30k's, the file has another format, or the vocabulary size is impossible.
        DataError: a file cannot be read, or contains no pair.
    """
    if path is None:
        pairs = synthetic_pairs(pieces)
        return pairs, tokenizers.learn("word", both_sides(pairs), pieces), "made-up sentences"
    if path.is_dir():
        source, target = (path / name for name in MULTI30K["train"])
        if not (source.is_file() and target.is_file()):
            names = " and ".join(MULTI30K["train"])
            raise ArgumentError(
                f"{path} is no folder of Multi30k, which has {names}: attent data multi30k --out {path}"
            )
        pairs, name = read_captions(source, target), "Multi30k English to German"
    else:
        pairs, name = [pair for _, pair in read_pairs(path, ReadReport(str(path)))], path.name
    if not pairs:
        raise DataError(f"{path} holds no pair")
    return pairs, tokenizers.learn("bpe", both_sides(pairs), pieces), name


def bitext(pairs: Sequence[Pair], tokenizer: Tokenizer) -> Bitext:
    """Return the encoded pairs; batches are padded only to their longest sentence."""
    return Bitext(pairs, tokenizer, tokenizer, length_multiple=1)


def synthetic_pairs(pieces: int, number: int = PAIRS, length: float = LENGTH, spread: float = SPREAD) -> list[Pair]:
    """Return synthetic sentences with the lengths and word frequencies of captions.

    Args:
        pieces: the vocabulary size, including special tokens.
        number: the number of pairs.
        length: the mean length of a source in tokens.
        spread: the standard deviation of the logarithm of lengths; with 0, all have the same length.

    Raises:
        ArgumentError: the vocabulary leaves room for no word.
    """
    if pieces <= SPECIALS:
        raise ArgumentError(f"a vocabulary must have more than its {SPECIALS} special ids, got {pieces}")
    generator = np.random.default_rng(0)
    sources = length * np.exp(spread * generator.standard_normal(number) - spread**2 / 2)
    targets = sources * np.exp((RATIO if spread else 0.0) * generator.standard_normal(number))
    counts = np.stack((sources, targets), 1).round().astype(np.int64).clip(1)
    frequencies = 1.0 / np.arange(1, pieces - SPECIALS + 1) ** ZIPF
    ranks = generator.choice(len(frequencies), int(counts.sum()), p=frequencies / frequencies.sum())
    words = [f"w{rank}" for rank in ranks.tolist()]
    ends = np.cumsum(counts.ravel()).tolist()
    texts = [" ".join(words[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    return [Pair(source, target) for source, target in zip(texts[::2], texts[1::2], strict=True)]


def both_sides(pairs: Sequence[Pair]) -> list[str]:
    """Return the sources and then the targets, to train a joint tokenizer."""
    return [pair.source for pair in pairs] + [pair.target for pair in pairs]
