"""Writer of word vectors, in every format that is read."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attent.errors import ArgumentError, DataError, check_known
from attent.text.word_vectors.formats import DECIMAL
from attent.text.word_vectors.vectors import WordVectors

GZIPPED = ".gz"
# White space that ends a field; other kinds are part of a word.
SPACE = re.compile(r"[ \t\n\v\f\r]")
# White space that a word may contain where fields are counted from the right.
INNER_SPACE = " \t"


class VectorFormat(NamedTuple):
    """Layout of a file of word vectors.

    Args:
        has_header: whether the first line is the number of words and of features.
        entry: turns a word and its vector into bytes.
        allows_spaces: whether a word may contain spaces.
    """

    has_header: bool
    entry: Callable[[bytes, np.ndarray], bytes]
    allows_spaces: bool


def _as_text(word: bytes, vector: np.ndarray) -> bytes:
    # the shortest numbers that give back the same float32
    return word + b" " + " ".join(vector.astype(str)).encode("ascii") + b"\n"


FORMATS = {
    "glove": VectorFormat(has_header=False, entry=_as_text, allows_spaces=True),
    "word2vec": VectorFormat(has_header=True, entry=_as_text, allows_spaces=True),
    "binary": VectorFormat(
        has_header=True,
        entry=lambda word, vector: b"%b %b\n" % (word, vector.astype("<f4").tobytes()),
        allows_spaces=False,
    ),
}
# The format of a file's name, without .gz.
ENDINGS = {".txt": "glove", ".vec": "word2vec", ".bin": "binary"}


def format_of(path: Path | str) -> str:
    """Return the format that a file's name ends in.

    Raises:
        ArgumentError: it ends in none.
    """
    ending = Path(str(path).removesuffix(GZIPPED)).suffix
    if ending not in ENDINGS:
        endings = ", ".join(f"{ending} ({name})" for ending, name in ENDINGS.items())
        raise ArgumentError(f"a file of word vectors is named {endings}, perhaps followed by {GZIPPED}; got {path}")
    return ENDINGS[ending]


def is_writable(word: str, form: str) -> bool:
    """Return whether a format can hold a word so that it is read back.

    Raises:
        UnknownNameError: there is no such format.
    """
    check_known("format of word vectors", form, FORMATS)
    spaces = SPACE.findall(word)
    if not word or SPACE.match(word) or SPACE.match(word[-1]):
        return False
    if not spaces:
        return True
    # a number at the end of a word with spaces would be read as part of its vector
    return (
        FORMATS[form].allows_spaces
        and set(spaces) <= set(INNER_SPACE)
        and not DECIMAL.fullmatch(word.split()[-1].encode())
    )


def write(path: Path | str, vectors: WordVectors, form: str | None = None, *, gzipped: bool | None = None) -> None:
    """Write word vectors, in float32.

    Args:
        path: the file.
        vectors: the words and their vectors.
        form: glove (a word and its numbers in each line), word2vec (the same below a header, as fastText's .vec) or
            binary (word2vec's); unless given, the file's name decides: .txt, .vec or .bin.
        gzipped: whether to compress the file; unless given, if its name ends in .gz.

    Raises:
        ArgumentError: the name ends in no format, or the format cannot hold a word.
        UnknownNameError: there is no such format.
        DataError: the file cannot be written.
    """
    form = format_of(path) if form is None else form
    gzipped = str(path).endswith(GZIPPED) if gzipped is None else gzipped
    for word in vectors.words:
        if not is_writable(word, form):
            raise ArgumentError(f"the format {form} cannot hold the word {word!r}")
    try:
        with gzip.open(path, "wb") if gzipped else Path(path).open("wb") as file:
            file.writelines(_entries(vectors, FORMATS[form]))
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from error


def _entries(vectors: WordVectors, form: VectorFormat) -> Iterator[bytes]:
    if form.has_header:
        yield f"{len(vectors)} {vectors.width}\n".encode("ascii")
    for word, vector in zip(vectors.words, vectors.vectors.detach().float().cpu().numpy(), strict=True):
        yield form.entry(word.encode(), vector)
