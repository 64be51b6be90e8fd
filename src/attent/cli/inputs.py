"""The inputs of commands: lines of a text, a file or standard input, pairs of texts, and examples to classify."""

from __future__ import annotations

import io
import re
import sys
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from attent.cli.output import say
from attent.errors import ArgumentError, DataError, refuse
from attent.text import readers
from attent.text.readers import TextPair, display_name, read_lines, split_pair

if TYPE_CHECKING:
    from attent.tasks.classification.classifier import Classifier
    from attent.tasks.classification.inputs import Data

# A single word that ends as files of text do.
FILE_NAME = re.compile(r"\S+\.(txt|tsv|csv|jsonl?|gz|src|docx|odt|srt|html|[a-z]{2})", re.IGNORECASE)


def open_source(source: str) -> BinaryIO:
    """Open standard input for "-", the file of that name if there is one, else the text itself.

    A file whose name ends in .gz is unpacked.

    Raises:
        ArgumentError: it is a folder, looks like the name of a missing file, or is not UTF-8.
    """
    if source == "-":
        return sys.stdin.buffer
    try:
        # an empty text does not name the working directory
        if source and Path(source).is_dir():
            raise ArgumentError(f"{source} is a folder, neither a file nor a text")
        # a pipe too
        if Path(source).exists():
            return readers.open_gzip(source) if source.endswith(".gz") else Path(source).open("rb")
        if FILE_NAME.fullmatch(source):
            raise ArgumentError(
                f"there is no file {source}; a text that looks like a file's name goes through standard input"
            )
    except ArgumentError:
        raise
    except (OSError, ValueError):
        pass  # too long for a name, or with a character that no name may have
    return io.BytesIO(check_utf8(source).encode())


def check_utf8(text: str, name: str = "the text") -> str:
    """Return the same text.

    Args:
        text: an argument of a command.
        name: of the argument, for the message.

    Raises:
        ArgumentError: its bytes were not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{name} is not UTF-8: {text[:60]!r}") from error
    return text


def check_file(name: str | Path) -> None:
    """Check that a name is that of a file, a pipe, or of standard input.

    Raises:
        ArgumentError: it is not.
    """
    if str(name) != "-" and (not Path(name).exists() or Path(name).is_dir()):
        raise ArgumentError(f"{str(name) or repr(name)} is no file")


def decode_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of UTF-8 text; only a line feed ends one, with or without a carriage return before it.

    Raises:
        DataError: a line is not UTF-8, or the file cannot be unpacked.
    """
    try:
        yield from readers.decode_lines(stream, display_name(name))
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{display_name(name)} cannot be read: {error}") from error


def read_text_pairs(pairs: str | None, source: str | None, target: str | None) -> Iterator[TextPair]:
    """Read pairs from one file, with a tab between source and target, or from two files.

    Raises:
        ArgumentError: the files do not go together, or do not exist.
    """
    refuse(
        (
            (source is None) != (target is None),
            "sources and their translations go together: --source FILE --target FILE",
        ),
        (
            pairs is not None and source is not None,
            "pairs come from one file, or from --source and --target, not from both",
        ),
        (source == target == "-", "standard input holds the sources or the targets, not both"),
    )
    for name in (pairs, source, target):
        if name is not None:
            check_file(name)
    if source is not None and target is not None:
        return _zip_files(source, target)
    name = pairs or "-"
    return (
        split_pair(line, f"{display_name(name)}, line {number}")
        for number, line in enumerate(read_lines(name), start=1)
    )


def _zip_files(source: str, target: str) -> Iterator[TextPair]:
    for number, (left, right) in enumerate(zip_longest(read_lines(source), read_lines(target)), start=1):
        if left is None or right is None:
            shorter, longer = (source, target) if left is None else (target, source)
            raise DataError(f"{display_name(shorter)} ends before line {number}, which {display_name(longer)} has")
        yield left, right


def read_examples(classifier: Classifier, source: str, *, invert: bool) -> tuple[list[str], Data]:
    """Read examples to classify, and the name of each: a text itself, a picture's file, or a number.

    Raises:
        ArgumentError: the source does not hold the kind of examples that the run reads.
        DataError: it cannot be read, or holds no picture.
    """
    from attent.tasks.classification.arrays import read_npz
    from attent.tasks.classification.pictures import Pictures, load_digits, picture_files
    from attent.tasks.classification.settings import DIGITS

    kind, path = classifier.inputs.inputs.kind, Path(source)
    if invert and kind != "pictures":
        raise ArgumentError(f"--invert is for pictures, and this run reads {kind}")
    examples: Any
    if kind == "texts":
        examples = _all_lines(source)
    elif path.suffix == ".npz":
        examples = read_npz(source, labelled=False)
        if isinstance(examples, Pictures) != (kind == "pictures"):
            expected, got = (
                ("pictures", "sequences of vectors") if kind == "pictures" else ("sequences of vectors", "pictures")
            )
            raise ArgumentError(f"this run reads {expected}, and {source} holds {got}")
    elif kind == "vectors":
        raise ArgumentError(f"this run reads sequences of vectors, from an .npz, got {source or repr(source)}")
    elif source == DIGITS:
        # as in training, whatever is called so: often it is the folder of the run
        if path.is_dir() and picture_files(path):
            say(f"{DIGITS} are scikit-learn's; the folder here is ./{DIGITS}")
        examples = load_digits()
    else:
        files = (
            _all_lines(source)
            if source == "-"
            else [str(file) for file in picture_files(path)]
            if path.is_dir()
            else [source]
        )
        examples = [file for file in files if file.strip()]
        if not examples:
            raise DataError(f"{source} has no picture")
    names = examples if isinstance(examples, list) else [str(number) for number in range(len(examples))]
    data = classifier.data(examples)
    if invert:
        assert isinstance(data, Pictures)
        data = Pictures((255 if data.pixels.dtype.kind == "u" else 1) - data.pixels, data.classes, data.labels)
    return names, data


def _all_lines(source: str) -> list[str]:
    with open_source(source) as stream:
        return [*decode_lines(stream, source)]
