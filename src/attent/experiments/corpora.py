"""Corpora of experiments: pairs to measure training on, and captions or dates joined into long lines."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from attent.errors import ArgumentError, DataError
from attent.runs.durable import write_text
from attent.tasks.dates import DatesSettings, dates
from attent.tasks.dates.corpus import HELD_OUT_DATES
from attent.tasks.translation.task import MAX_TRANSLATED
from attent.text import tokenizers
from attent.text.batches import Bitext
from attent.text.corpus import pair_corpus
from attent.text.readers import read_pairs, read_parallel
from attent.text.report import ReadReport
from attent.text.settings import TextSettings
from attent.text.text import Pair
from attent.text.tokenizer import SPECIALS, Tokenizer

# The parts of Multi30k, English to German, lower-cased and split into words, in the folder that `attent data multi30k`
# fills.
MULTI30K = {
    part: tuple(f"tok/{name}.lc.norm.tok.{language}.gz" for language in ("en", "de"))
    for part, name in {"train": "train", "valid": "val", "test": "test_2016_flickr"}.items()
}
# As many pairs as Multi30k has, and as long on average, in tokens of 10,000 pieces.
PAIRS, LENGTH = 29_000, 14.0
# Standard deviation of the logarithm of lengths, and of the logarithm of target over source.
SPREAD, RATIO = 0.3, 0.12
# The frequency of the word of rank n is proportional to n to the power of minus this (Zipf 1949).
ZIPF = 1.0
# The most captions, or dates, in a joined pair.
MAX_JOINED, MAX_JOINED_DATES = 5, 3
# Passes over those of training, each of which joins them anew.
PASSES = 3


def validation_pairs(settings: TextSettings) -> list[Pair]:
    """Return the pairs that a training on these files validates on, at most 1,000, spread over all of them.

    Raises:
        DataError: a file cannot be read, or holds no pair.
    """
    pairs = pair_corpus(settings).validation
    count = min(len(pairs), MAX_TRANSLATED)
    return [pairs[number * len(pairs) // count] for number in range(count)]


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
        pairs, name = _read_captions(source, target), "Multi30k English to German"
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


def join_captions(folder: Path, out: Path) -> tuple[dict[str, str], list[Pair]]:
    """Write pairs for training and validation, and return them with those of the test.

    1 to 5 captions joined in each, see `join`.

    Args:
        folder: that of Multi30k.
        out: folder for train.tsv and valid.tsv.

    Raises:
        ArgumentError: it is no folder of Multi30k, or `out` holds captions of another folder.
    """
    missing = [name for names in MULTI30K.values() for name in names if not (folder / name).is_file()]
    if missing:
        raise ArgumentError(
            f"{folder} is no folder of Multi30k, it has no {missing[0]}: attent data multi30k --out {folder}"
        )
    return join(
        {part: _read_captions(*(folder / name for name in names)) for part, names in MULTI30K.items()}, MAX_JOINED, out
    )


def join_dates(settings: DatesSettings, out: Path) -> tuple[dict[str, str], list[Pair]]:
    """Write pairs for training and validation, and return them with those of the test.

    1 to 3 dates joined in each, see `join`.

    Args:
        settings: of the dates.
        out: folder for train.tsv and valid.tsv.

    Raises:
        ArgumentError: `out` holds other dates.
    """
    corpus = dates(settings)
    return join(
        {"train": corpus.train, "valid": corpus.validation, "test": corpus.held_out[HELD_OUT_DATES]},
        MAX_JOINED_DATES,
        out,
    )


def join(parts: Mapping[str, Sequence[Pair]], maximum: int, out: Path) -> tuple[dict[str, str], list[Pair]]:
    """Write pairs for training and validation, and return them with those of the test.

    A few short pairs joined in each. Training takes all short pairs in a random order, a random number at a time, in
    several passes; validation and test have as many pairs of each number, and each short pair of the test is in one of
    them alone. The draws are the same each time.

    Args:
        parts: the short pairs of train, valid and test.
        maximum: how many short pairs are joined at most.
        out: folder for train.tsv and valid.tsv.

    Returns:
        Their paths, as the settings of a text name them, and the test's pairs.

    Raises:
        ArgumentError: `out` holds other pairs.
    """
    out.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for part, pairs in {
        "train": _training_pairs(parts["train"], maximum),
        "valid": _balanced_pairs(parts["valid"], maximum),
    }.items():
        path, text = out / f"{part}.tsv", "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
        if not path.is_file():
            write_text(path, text)
        elif path.read_bytes() != text.encode():
            raise ArgumentError(f"{path} holds other pairs than those to be joined now: name another folder with --out")
        files[part] = str(path.resolve())
    return files, _balanced_pairs(parts["test"], maximum)


def both_sides(pairs: Sequence[Pair]) -> list[str]:
    """Return the sources, then the targets, from which one tokenizer of both learns."""
    return [pair.source for pair in pairs] + [pair.target for pair in pairs]


def _read_captions(source: Path, target: Path) -> list[Pair]:
    return [pair for _, pair in read_parallel(source, target, ReadReport(str(source)))]


def _training_pairs(pairs: Sequence[Pair], maximum: int) -> list[Pair]:
    rng, joined = random.Random(0), list[Pair]()
    for _ in range(PASSES):
        order = rng.sample(pairs, len(pairs))
        while order:
            number = rng.randint(1, maximum)
            joined.append(_join(order[:number]))
            del order[:number]
    return joined


def _balanced_pairs(pairs: Sequence[Pair], maximum: int) -> list[Pair]:
    """Join into as many of each number as the pairs suffice for.

    None of these is in two of them, which are thus independent.
    """
    order, numbers = random.Random(1).sample(pairs, len(pairs)), range(1, maximum + 1)
    stack = iter(order)
    return [
        _join([next(stack) for _ in range(number)]) for number in numbers for _ in range(len(order) // sum(numbers))
    ]


def _join(pairs: Sequence[Pair]) -> Pair:
    return Pair(" ".join(pair.source for pair in pairs), " ".join(pair.target for pair in pairs))
