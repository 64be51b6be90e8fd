"""The pairs that training is measured on: Multi30k, a file of pairs, or text that is made up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from attent.data import tokenizers
from attent.data.batches import Bitext
from attent.data.readers import ReadReport, read_pairs, read_parallel
from attent.data.text import Pair
from attent.data.tokenizer import SPECIALS, Tokenizer
from attent.errors import ArgumentError, DataError

# Of Multi30k's training set, English to German, in the folder that `attent data multi30k` fills.
MULTI30K = ("tok/train.lc.norm.tok.en.gz", "tok/train.lc.norm.tok.de.gz")
# As many pairs as Multi30k has, and as long on average, in tokens of 10,000 pieces.
PAIRS, LENGTH = 29_000, 14.0
# How much lengths differ: the standard deviation of their logarithm, and of the logarithm of target over source.
SPREAD, RATIO = 0.3, 0.12
# Words so many places down the list are that many times rarer (Zipf 1949).
ZIPF = 1.0


def read(path: Path | None, pieces: int) -> tuple[Sequence[Pair], Tokenizer, str]:
    """Pairs, the one tokenizer of both sides, and what they are called.

    Args:
        path: the folder of Multi30k, or a file of pairs as `attent train --train` takes it; made up unless given.
        pieces: tokens in the vocabulary; of BPE, or words of what is made up.

    Raises:
        ArgumentError: a folder that is not Multi30k's, a file of another kind, or a vocabulary that cannot be had.
        DataError: a file cannot be read, or holds no pair.
    """
    if path is None:
        some = made_up(pieces)
        return some, tokenizers.learn("word", both(some), pieces), "made-up sentences"
    if path.is_dir():
        source, target = (path / name for name in MULTI30K)
        if not (source.is_file() and target.is_file()):
            raise ArgumentError(f"{path} is no folder of Multi30k, which has {' and '.join(MULTI30K)}: attent data multi30k --to {path}")
        some, name = [pair for _, pair in read_parallel(source, target, ReadReport(str(path)))], "Multi30k English to German"
    else:
        some, name = [pair for _, pair in read_pairs(path, ReadReport(str(path)))], path.name
    if not some:
        raise DataError(f"{path} holds no pair")
    return some, tokenizers.learn("bpe", both(some), pieces), name


def bitext(some: Sequence[Pair], tokenizer: Tokenizer) -> Bitext:
    """The pairs, encoded, and padded no further than to the longest of a batch."""
    return Bitext(some, tokenizer, tokenizer, length_multiple=1)


def made_up(pieces: int, number: int = PAIRS, length: float = LENGTH, spread: float = SPREAD, seed: int = 0) -> list[Pair]:
    """Sentences of made-up words, always the same: their lengths and how often each word comes are those of captions.

    Args:
        pieces: tokens in the vocabulary, special ones included.
        number: how many pairs.
        length: tokens of a source, on average.
        spread: how much lengths differ; with 0 not at all.
        seed: of what is drawn.

    Raises:
        ArgumentError: the vocabulary leaves room for no word.
    """
    if pieces <= SPECIALS:
        raise ArgumentError(f"a vocabulary must have more than its {SPECIALS} special ids, got {pieces}")
    generator = np.random.default_rng(seed)
    sources = length * np.exp(spread * generator.standard_normal(number) - spread**2 / 2)
    targets = sources * np.exp((RATIO if spread else 0.0) * generator.standard_normal(number))
    counts = np.stack((sources, targets), 1).round().astype(np.int64).clip(1)
    share = 1.0 / np.arange(1, pieces - SPECIALS + 1) ** ZIPF
    words = [f"w{place}" for place in generator.choice(len(share), int(counts.sum()), p=share / share.sum()).tolist()]
    ends = np.cumsum(counts.ravel()).tolist()
    texts = [" ".join(words[first:last]) for first, last in zip([0, *ends[:-1]], ends, strict=True)]
    return [Pair(source, target) for source, target in zip(texts[::2], texts[1::2], strict=True)]


def both(some: Sequence[Pair]) -> list[str]:
    """The sources, then the targets: what one tokenizer of both is learnt from."""
    return [pair.source for pair in some] + [pair.target for pair in some]
