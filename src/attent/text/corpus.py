"""Corpora of pairs or single lines, read from files.

Reading, checking, splitting and encoding need little memory, even for large corpora. Splits are random or by class, and
no text is in both parts.
"""

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic

import numpy as np

from attent.errors import ArgumentError, DataError
from attent.text.batches import KEY_MULTIPLE, Bitext
from attent.text.disk_texts import (
    DiskSequences,
    DiskTexts,
    Row,
    TemporaryFolder,
    index,
    write_index,
    write_pairs,
    write_texts,
)
from attent.text.readers import OVER_LONG, LabelledText, display_name, read_pairs, read_parallel, read_texts
from attent.text.settings import LinesSettings, TextSettings
from attent.text.text import Pair, ReadReport
from attent.text.tokenizer import Tokenizer
from attent.text.tokenizers import learn

VALIDATION_SHARE = 0.05
MAX_VALIDATION = 1_000
# Reasons in reports for dropping a training row.
IN_VALIDATION, TEXT_IN_VALIDATION = "also in validation", "the text is also in validation"
# Files in the folder of a corpus: the texts to train and to validate on, and the index.
TRAIN, VALIDATION, REPLAY, MIXTURE, INDEX = "train.txt", "validation.txt", "replay.txt", "mixture.txt", "index"
# The word for a line in messages, and the name of its sequences in an index.
LINE = "line"
SOURCE, TARGET = 0, 1


def split(
    texts: DiskTexts[Row], seed: int, report: ReadReport, row_name: str = "pair"
) -> tuple[DiskTexts[Row], DiskTexts[Row]]:
    """Split off a random 5 % of the rows for validation, at least 1 and at most 1,000.

    Args:
        texts: the rows to split.
        seed: the seed of the split.
        report: records training rows that are dropped because validation has them too.
        row_name: the word for a row in messages.

    Returns:
        The training rows and the validation rows, each in their original order.

    Raises:
        DataError: there are fewer than two rows.
    """
    if len(texts) < 2:
        raise DataError(f"{report.name}: at least 2 {row_name}s are needed to train and validate, got {len(texts)}")
    count = min(max(round(VALIDATION_SHARE * len(texts)), 1), MAX_VALIDATION)
    is_validation = np.zeros(len(texts), bool)
    is_validation[np.random.default_rng(seed).permutation(len(texts))[:count]] = True
    validation = texts.select(np.flatnonzero(is_validation))
    return drop_shared(texts.select(np.flatnonzero(~is_validation)), validation, report, row_name), validation


def drop_shared(
    texts: DiskTexts[Row], validation: DiskTexts[Row], report: ReadReport, row_name: str = "pair"
) -> DiskTexts[Row]:
    """Drop training rows that validation has too; rows match if all their texts are equal.

    Args:
        texts: the training rows.
        validation: the validation rows; held in memory.
        report: records dropped rows.
        row_name: the word for a row in messages.

    Raises:
        DataError: no rows are left.
    """
    held_out = set(validation.fields())
    is_kept = np.ones(len(texts), bool)
    for row, fields in enumerate(texts.fields()):
        if fields in held_out:
            is_kept[row] = False
            report.drop(IN_VALIDATION, texts.line_number(row))
    if not is_kept.any():
        raise DataError(f"no {row_name} is left to train on; {report.one_line()}")
    return texts if is_kept.all() else texts.select(np.flatnonzero(is_kept))


def drop_shared_texts(
    examples: Sequence[tuple[int, LabelledText]], held_out: Iterable[LabelledText], report: ReadReport
) -> list[tuple[int, LabelledText]]:
    """Drop labeled training texts that are also held out, regardless of their labels.

    Args:
        examples: the training texts, with their line numbers.
        held_out: the validation and test texts.
        report: records dropped texts.

    Raises:
        DataError: no texts are left.
    """
    texts = {example.text for example in held_out}
    for number, example in examples:
        if example.text in texts:
            report.drop(TEXT_IN_VALIDATION, number)
    result = [(number, example) for number, example in examples if example.text not in texts]
    if not result:
        raise DataError(f"no text is left to train on; {report.one_line()}")
    return result


def split_by_class(
    classes: np.ndarray, share: float, seed: int, limit: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out a random share of the examples, as close as possible to the same share of each class.

    Each class keeps at least one training example.

    Args:
        classes: the class of each example, (N,), from 0.
        share: the share to hold out, 0 to 1: round(share · N) of N examples, at least one if the share is above 0.
        seed: the seed of the split.
        limit: the maximum number of examples to hold out.

    Returns:
        The training rows and the held-out rows, both in ascending order.
    """
    total = min(max(round(share * len(classes)), int(share > 0)), len(classes) if limit is None else limit)
    counts = np.bincount(classes)
    exact = counts * (total / max(len(classes), 1))
    held_out = np.minimum(exact.astype(int), np.maximum(counts - 1, 0))
    # largest remainder: the remaining examples go to the classes that lost most to rounding down
    for number in np.argsort(held_out - exact, kind="stable"):
        if held_out.sum() < total and held_out[number] < counts[number] - 1:
            held_out[number] += 1
    order = np.random.default_rng(seed).permutation(len(classes))
    rows = np.concatenate(
        [np.zeros(0, int), *(order[classes[order] == number][:count] for number, count in enumerate(held_out))]
    )
    is_held_out = np.zeros(len(classes), bool)
    is_held_out[rows] = True
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


@dataclass(frozen=True)
class TextCorpus(Generic[Row]):
    """Pairs or lines for training and validation.

    Args:
        train: training rows, none of which is in validation.
        validation: validation rows.
        reports: the report on the training files and, if validation has its own files, the report on those.
        folder: the folder of the texts and their index; it exists as long as the corpus does.
        replay: the report on the pairs that are mixed in, if any.
    """

    train: DiskTexts[Row]
    validation: DiskTexts[Row]
    reports: tuple[ReadReport, ...]
    folder: TemporaryFolder
    replay: ReadReport | None = None


def pair_corpus(settings: TextSettings, within: Path | str | None = None) -> TextCorpus[Pair]:
    """Read a corpus of pairs from files and store it on disk.

    Args:
        settings: the files and the seed of the split.
        within: the folder to store it in; by default the system's folder for temporary files.

    Raises:
        ArgumentError: a file name has an unknown extension.
        DataError: a file cannot be read, is empty, contains no pairs or a line that is not UTF-8; parallel files differ
            in length.
    """
    folder = TemporaryFolder(within)
    train = _write_pairs(settings.train, settings.train_source, settings.train_target, folder, TRAIN)
    validation = (
        _write_pairs(settings.valid, settings.valid_source, settings.valid_target, folder, VALIDATION)
        if settings.valid is not None or settings.valid_source is not None
        else None
    )
    corpus = _split_corpus(folder, train, validation, settings.seed)
    return corpus if settings.replay is None else _mix(corpus, settings.replay, settings.replay_share)


def _mix(corpus: TextCorpus[Pair], replay: str, share: float) -> TextCorpus[Pair]:
    """Mix the pairs of a file into the training pairs.

    The smaller set is repeated until the file's pairs are a `share` of the mixture. Source: rehearsal, Robins (1995);
    mixed fine-tuning of translators, Chu et al. (2017), §3.4, arXiv 1701.03214.
    """
    texts, report = _write_pairs(replay, None, None, corpus.folder, REPLAY)
    texts = drop_shared(texts, corpus.validation, report)
    parts = (corpus.train, texts)
    numbered = (zip(part.line_numbers.tolist(), part, strict=True) for part in parts)
    mixture = write_pairs(itertools.chain.from_iterable(numbered), corpus.folder, MIXTURE)
    counts = np.array([len(part) for part in parts])
    # how often each pair is repeated: one of the two numbers is 1
    sizes = np.array([1 - share, share]) / counts
    repeats = np.maximum(np.rint(sizes / sizes.min()), 1).astype(int)
    return replace(
        corpus, train=mixture.select(np.repeat(np.arange(len(mixture)), np.repeat(repeats, counts))), replay=report
    )


def line_corpus(settings: LinesSettings, within: Path | str | None = None) -> TextCorpus[str]:
    """Read a corpus of lines from files and store it on disk; arguments and errors as for `pair_corpus`."""
    folder = TemporaryFolder(within)
    train = _write_lines(settings.train, folder, TRAIN)
    validation = None if settings.valid is None else _write_lines(settings.valid, folder, VALIDATION)
    return _split_corpus(folder, train, validation, settings.seed, LINE)


def learn_tokenizers(corpus: TextCorpus[Pair], settings: TextSettings) -> tuple[Tokenizer, Tokenizer]:
    """Learn source and target tokenizers from the training pairs; a shared tokenizer is returned twice.

    Raises:
        ArgumentError: a vocabulary of this size cannot be learned from the text.
    """
    kind, size = settings.tokenizer_of("source")
    if settings.shared:
        tokenizer = learn(kind, _Columns(corpus.train, (SOURCE, TARGET)), size)
        return tokenizer, tokenizer
    source = learn(kind, _Columns(corpus.train, (SOURCE,)), size)
    kind, size = settings.tokenizer_of("target")
    return source, learn(kind, _Columns(corpus.train, (TARGET,)), size)


def encode_pairs(
    corpus: TextCorpus[Pair],
    settings: TextSettings,
    source: Tokenizer,
    target: Tokenizer,
    *,
    length_multiple: int = KEY_MULTIPLE,
) -> Bitext:
    """Encode the training pairs on disk; pairs beyond the settings' maximum length are dropped and reported.

    Raises:
        ArgumentError: the settings request dropout of pieces, which is no longer supported.
        DataError: no pair is short enough.
    """
    if settings.dropout:
        raise ArgumentError(
            "text.dropout must be 0: attent no longer supports training with dropout of pieces (BPE-dropout, subword "
            "regularization)"
        )
    report, folder, limit = corpus.reports[0], corpus.folder.path / INDEX, settings.maximum_length
    return index(
        corpus.train, source, target, folder, maximum_length=limit, report=report, length_multiple=length_multiple
    )


def encode_lines(corpus: TextCorpus[str], tokenizer: Tokenizer, maximum_length: int | None = None) -> DiskSequences:
    """Encode the training lines on disk; lines beyond the maximum length, in tokens, are dropped and reported.

    Raises:
        DataError: no line is short enough.
    """
    folder, report, limit = (
        corpus.folder.path / INDEX,
        corpus.reports[0],
        sys.maxsize if maximum_length is None else maximum_length,
    )
    write_index(corpus.train, {LINE: tokenizer}, folder, maximum_length=limit, report=report, row_name=LINE)
    return open_lines(corpus.folder.path)


def open_lines(folder: Path | str) -> DiskSequences:
    """Open training lines that another process encoded with `encode_lines`."""
    return DiskSequences(Path(folder) / INDEX, LINE)


def drop_long(
    pairs: Sequence[Pair],
    lines: Sequence[int],
    tokenizers: Sequence[Tokenizer],
    limits: Sequence[float],
    report: ReadReport,
) -> Sequence[Pair]:
    """Drop validation pairs that are too long.

    Args:
        pairs: the validation pairs.
        lines: the line number of each pair.
        tokenizers: the tokenizers of source and target.
        limits: the maximum lengths of source and target in tokens, without BOS and EOS.
        report: records dropped pairs.
    """
    rows: list[int] = []
    for row, pair in enumerate(pairs):
        sides = zip(tokenizers, (pair.source, pair.target), limits, strict=True)
        if any(len(tokenizer.encode(text)) > limit for tokenizer, text, limit in sides):
            report.drop(OVER_LONG, int(lines[row]))
        else:
            rows.append(row)
    return pairs.select(np.array(rows, int)) if isinstance(pairs, DiskTexts) else [pairs[row] for row in rows]


class _Columns(Iterable[str]):
    """The texts of some columns, row by row; can be iterated over repeatedly."""

    def __init__(self, texts: DiskTexts[Pair], columns: tuple[int, ...]) -> None:
        self._texts, self._columns = texts, columns

    def __iter__(self) -> Iterator[str]:
        return (fields[column] for fields in self._texts.fields() for column in self._columns)


def _write_pairs(
    file: str | None, source: str | None, target: str | None, folder: TemporaryFolder, name: str
) -> tuple[DiskTexts[Pair], ReadReport]:
    if file is not None:
        report = ReadReport(display_name(file))
        pairs = read_pairs(file, report)
    else:
        assert source is not None and target is not None
        report = ReadReport(f"{display_name(source)} and {display_name(target)}")
        pairs = read_parallel(source, target, report)
    texts = write_pairs(pairs, folder, name)
    return _nonempty(texts, "a pair", report)


def _write_lines(file: str, folder: TemporaryFolder, name: str) -> tuple[DiskTexts[str], ReadReport]:
    report = ReadReport(display_name(file))
    texts = write_texts(((number, (line,)) for number, line in read_texts(file, report)), folder, name, str)
    return _nonempty(texts, "text", report)


def _nonempty(texts: DiskTexts[Row], content: str, report: ReadReport) -> tuple[DiskTexts[Row], ReadReport]:
    if not len(texts):
        raise DataError(f"no line contains {content}; {report.one_line()}")
    return texts, report


def _split_corpus(
    folder: TemporaryFolder,
    train: tuple[DiskTexts[Row], ReadReport],
    validation: tuple[DiskTexts[Row], ReadReport] | None,
    seed: int,
    row_name: str = "pair",
) -> TextCorpus[Row]:
    texts, report = train
    if validation is None:
        return TextCorpus(*split(texts, seed, report, row_name), (report,), folder)
    return TextCorpus(
        drop_shared(texts, validation[0], report, row_name), validation[0], (report, validation[1]), folder
    )
