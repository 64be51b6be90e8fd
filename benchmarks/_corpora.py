"""Corpora to measure training on: Multi30k, pairs in a file, and synthetic sentences as long as captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from attent.comparison.length import MULTI30K, read_captions
from attent.errors import ArgumentError, DataError
from attent.text import tokenizers
from attent.text.batches import Bitext
from attent.text.readers import read_pairs
from attent.text.text import Pair, ReadReport
from attent.text.tokenizer import SPECIALS, Tokenizer

# As many pairs as Multi30k has, and as long on average, in tokens of 10,000 pieces.
PAIRS, LENGTH = 29_000, 14.0
# Standard deviation of the logarithm of lengths, and of the logarithm of target over source.
SPREAD, RATIO = 0.3, 0.12
# The frequency of the word of rank n is proportional to n to the power of minus this (Zipf 1949).
ZIPF = 1.0


def load_pairs(path: Path | None, pieces: int) -> tuple[Sequence[Pair], Tokenizer, str]:
    """Return pairs, the one tokenizer of both sides, and the name of the corpus.

    Args:
        path: the folder of Multi30k, or a file of pairs as `attent train --train` takes it; synthetic sentences unless
            given.
        pieces: tokens in the vocabulary; of BPE, or words of synthetic sentences.

    Raises:
        ArgumentError: a folder that is not Multi30k's, a file of another kind, or a vocabulary of an impossible size.
        DataError: a file cannot be read, or holds no pair.
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
    """Return the encoded pairs, whose batches are padded to their longest sentence and no further."""
    return Bitext(pairs, tokenizer, tokenizer, length_multiple=1)


def synthetic_pairs(pieces: int, number: int = PAIRS, length: float = LENGTH, spread: float = SPREAD) -> list[Pair]:
    """Return synthetic sentences whose lengths and word frequencies are those of captions.

    Args:
        pieces: tokens in the vocabulary, special ones included.
        number: of pairs.
        length: mean length of a source in tokens.
        spread: standard deviation of the logarithm of lengths; with 0 all are equally long.

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
    """Return the sources, then the targets, from which one tokenizer of both learns."""
    return [pair.source for pair in pairs] + [pair.target for pair in pairs]
