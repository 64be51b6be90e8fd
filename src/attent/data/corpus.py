"""A corpus from files: read, checked, split, and cut into tokens, in little memory however large it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attent.data.batches import KEY_MULTIPLE, Bitext
from attent.data.bpe_dropout_bitext import ResampledBitext
from attent.data.disk_pairs import StoredPairs, WorkingFolder, opened, store
from attent.data.index import DiskBitext, index
from attent.data.readers import OVER_LONG, ReadReport, read_pairs, read_parallel
from attent.data.settings import TextSettings
from attent.data.subword_tokenizer import SubwordTokenizer
from attent.data.text import Pair
from attent.data.tokenizer import Tokenizer
from attent.data.tokenizers import learn
from attent.data.train_valid_split import split, without
from attent.errors import ArgumentError, DataError

# What lies in a corpus' folder: the pairs to train on, and their index.
TRAIN, INDEX = "train.txt", "index"


@dataclass(frozen=True)
class TextCorpus:
    """Pairs to train on and to validate on, and what was done with every line that gave none.

    Args:
        train: the pairs to train on, none of which is in validation.
        validation: the pairs to validate on.
        reports: on training's files, and on validation's if it has its own.
        folder: where the pairs lie as long as the corpus does; an index may lie there too.
    """

    train: StoredPairs
    validation: StoredPairs
    reports: tuple[ReadReport, ...]
    folder: WorkingFolder


def text(settings: TextSettings, within: Path | str | None = None) -> TextCorpus:
    """Read a corpus from its files. The pairs are put on disk, and read from there when they are needed.

    Args:
        settings: which files, and the seed of the split.
        within: the folder to put them in; the system's for temporary files unless given.

    Raises:
        ArgumentError: a file's name says of no known format.
        DataError: a file cannot be read, is empty, has a line that is not UTF-8 or holds no pair; two files of which the
            same lines are pairs differ in length.
    """
    folder = WorkingFolder(within)
    train, report = _read(settings.train, settings.train_source, settings.train_target, folder, TRAIN)
    if settings.valid is None and settings.valid_source is None:
        train, validation = split(train, settings.seed, report)
        return TextCorpus(train, validation, (report,), folder)
    validation, seen = _read(settings.valid, settings.valid_source, settings.valid_target, folder, "validation.txt")
    return TextCorpus(without(train, validation, report), validation, (report, seen), folder)


def tokenizers(corpus: TextCorpus, settings: TextSettings) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of source and target, learnt from what is trained on; the same one twice if it is shared.

    Raises:
        ArgumentError: a vocabulary's size cannot be had.
    """
    kind, size = settings.tokenizer_of("source")
    if settings.shared:
        tokenizer = learn(kind, _Texts(corpus.train, ("source", "target")), size)
        return tokenizer, tokenizer
    source = learn(kind, _Texts(corpus.train, ("source",)), size)
    kind, size = settings.tokenizer_of("target")
    return source, learn(kind, _Texts(corpus.train, ("target",)), size)


def bitext(
    corpus: TextCorpus, settings: TextSettings, source: Tokenizer, target: Tokenizer, *, length_multiple: int = KEY_MULTIPLE
) -> Bitext:
    """The pairs to train on, encoded on disk; those longer than the settings' maximum length are left out and reported.

    Raises:
        ArgumentError: pieces are to be dropped out, which these tokenizers do not have.
        DataError: every pair is too long.
    """
    report, folder = corpus.reports[0], corpus.folder.path / INDEX
    encoded = index(
        corpus.train, source, target, folder, maximum_length=settings.maximum_length, report=report, length_multiple=length_multiple
    )
    if settings.dropout:
        corpus.train.describe()
    return _resampled(encoded, corpus.train, settings, source, target)


def open_bitext(
    folder: Path | str, settings: TextSettings, source: Tokenizer, target: Tokenizer, *, length_multiple: int = KEY_MULTIPLE
) -> Bitext:
    """The pairs to train on that another process has encoded, by `bitext`, and keeps as long as they are used.

    Args:
        folder: its corpus' folder.
        settings: those of its corpus.
        source: its source's tokenizer.
        target: its target's tokenizer.
        length_multiple: see `bitext`.
    """
    encoded = DiskBitext(Path(folder) / INDEX, length_multiple=length_multiple)
    pairs = opened(WorkingFolder.of_another(folder), TRAIN) if settings.dropout else None
    return _resampled(encoded, pairs, settings, source, target)


def _resampled(encoded: DiskBitext, pairs: StoredPairs | None, settings: TextSettings, source: Tokenizer, target: Tokenizer) -> Bitext:
    if not settings.dropout:
        return encoded
    if not isinstance(source, SubwordTokenizer) or not isinstance(target, SubwordTokenizer):
        raise ArgumentError("dropout of pieces needs bpe or unigram on both sides")
    assert pairs is not None
    return ResampledBitext(encoded, pairs, source, target, settings.dropout, maximum_length=settings.maximum_length)


def drop_long(
    pairs: Sequence[Pair], lines: Sequence[int], tokenizers: Sequence[Tokenizer], most: Sequence[float], report: ReadReport
) -> Sequence[Pair]:
    """The pairs that are not too long, to be validated on.

    Args:
        pairs: all of them.
        lines: the number of each one's line.
        tokenizers: of source and target.
        most: tokens that source and target may have, BOS and EOS not counted.
        report: takes up the pairs that are longer.
    """
    rows: list[int] = []
    for row, pair in enumerate(pairs):
        sides = zip(tokenizers, (pair.source, pair.target), most, strict=True)
        if any(len(tokenizer.encode(text)) > limit for tokenizer, text, limit in sides):
            report.drop(OVER_LONG, int(lines[row]))
        else:
            rows.append(row)
    return pairs.only(np.array(rows, int)) if isinstance(pairs, StoredPairs) else [pairs[row] for row in rows]


class _Texts(Iterable[str]):
    """One side of the pairs, or both in turn, from the beginning each time."""

    def __init__(self, of: Sequence[Pair], sides: tuple[str, ...]) -> None:
        self._of, self._sides = of, sides

    def __iter__(self) -> Iterator[str]:
        for pair in self._of:
            for side in self._sides:
                yield getattr(pair, side)


def _read(one: str | None, source: str | None, target: str | None, folder: WorkingFolder, name: str) -> tuple[StoredPairs, ReadReport]:
    if one is not None:
        report = ReadReport(_named(one))
        numbered = read_pairs(one, report)
    else:
        assert source is not None and target is not None
        report = ReadReport(f"{_named(source)} and {_named(target)}")
        numbered = read_parallel(source, target, report)
    stored = store(numbered, folder, name)
    if not len(stored):
        raise DataError(f"no line holds a pair; {'; '.join(line.strip() for line in report.summary())}")
    return stored, report


def _named(path: str) -> str:
    return "standard input" if path == "-" else path
