"""A corpus of single lines from files: read, checked, split, and cut into tokens, in little memory however large it is.

It goes the way of pairs (`attent.data.corpus`): a line is stored as a pair without a target.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attent.data.batches import KEY_MULTIPLE
from attent.data.corpus import INDEX, TRAIN, TextCorpus
from attent.data.disk_pairs import StoredPairs, WorkingFolder, store
from attent.data.index import DiskSequences, index_lines
from attent.data.masked_lm import MaskedLines
from attent.data.readers import BEYOND, EMPTY_LINE, RARE, STANDARD_INPUT, ReadReport, read_lines
from attent.data.settings import LinesSettings
from attent.data.text import Pair
from attent.data.tokenizer import Tokenizer
from attent.data.tokenizers import learn
from attent.data.train_valid_split import split, without
from attent.errors import DataError

LINE = "line"


def text(settings: LinesSettings, within: Path | str | None = None) -> TextCorpus:
    """Read a corpus of lines from its files. They are put on disk, and read from there when they are needed.

    Args:
        settings: which files, and the seed of the split.
        within: the folder to put them in; the system's for temporary files unless given.

    Raises:
        DataError: a file cannot be read, is empty, has a line that is not UTF-8 or none with text.
    """
    folder = WorkingFolder(within)
    train, report = _read(settings.train, folder, TRAIN)
    if settings.valid is None:
        train, validation = split(train, settings.seed, report, LINE)
        return TextCorpus(train, validation, (report,), folder)
    validation, seen = _read(settings.valid, folder, "validation.txt")
    return TextCorpus(without(train, validation, report, LINE), validation, (report, seen), folder)


def tokenizer(corpus: TextCorpus, settings: LinesSettings) -> Tokenizer:
    """The tokenizer, learnt from what is trained on.

    Raises:
        ArgumentError: a vocabulary's size cannot be had.
    """
    return learn(settings.tokenizer, Texts(corpus.train), settings.size)


def encoded(corpus: TextCorpus, settings: LinesSettings, tokenizer: Tokenizer, *, length_multiple: int = KEY_MULTIPLE) -> MaskedLines:
    """The lines to train on, encoded on disk; those longer than the settings' maximum length are left out and reported.

    Raises:
        DataError: every line is too long.
    """
    folder, report = corpus.folder.path / INDEX, corpus.reports[0]
    index_lines(corpus.train, tokenizer, folder, maximum_length=settings.maximum_length, report=report)
    return lent(corpus.folder.path, settings, tokenizer, length_multiple=length_multiple)


def lent(folder: Path | str, settings: LinesSettings, tokenizer: Tokenizer, *, length_multiple: int = KEY_MULTIPLE) -> MaskedLines:
    """The lines to train on that another process has encoded, by `encoded`, and keeps as long as they are used.

    Args:
        folder: its corpus' folder.
        settings: those of its corpus.
        tokenizer: its tokenizer.
        length_multiple: see `BlankedLines`.
    """
    return MaskedLines(DiskSequences(Path(folder) / INDEX, LINE), tokenizer.size, settings.blanks, length_multiple=length_multiple)


class Texts:
    """The lines of a corpus, from the beginning each time.

    Args:
        of: where they are stored.
    """

    def __init__(self, of: StoredPairs) -> None:
        self._of = of

    def __iter__(self) -> Iterator[str]:
        return (pair.source for pair in self._of)


def _read(path: str, folder: WorkingFolder, name: str) -> tuple[StoredPairs, ReadReport]:
    report = ReadReport("standard input" if path == STANDARD_INPUT else path)
    stored = store(_kept(path, report), folder, name)
    if not len(stored):
        raise DataError(f"no line holds text; {'; '.join(line.strip() for line in report.summary())}")
    return stored, report


def _kept(path: str, report: ReadReport) -> Iterator[tuple[int, Pair]]:
    for number, line in enumerate(read_lines(path), start=1):
        report.lines = number
        if not line.strip():
            report.drop(EMPTY_LINE, number)
            continue
        if max(line) > BEYOND:
            report.note(RARE, number)
        yield number, Pair(line, "")
    if not report.lines:
        raise DataError(f"{report.name}: empty")
