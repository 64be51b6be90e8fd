"""Word vectors into a file, in any of the formats that are read."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attent.data.word_vectors.text import DECIMAL
from attent.data.word_vectors.vectors import WordVectors
from attent.errors import ArgumentError, DataError, UnknownNameError

GZIPPED = ".gz"
# White space that ends a field; other kinds are part of a word.
SPACE = re.compile(r"[ \t\n\v\f\r]")
# The whitespace that words may have within where fields are counted from the right.
BLANKS = " \t"


class Format(NamedTuple):
    """How a format writes.

    Args:
        header: whether the first line is the number of words and of their features.
        entry: from a word and its vector to bytes.
        spaces: whether a word may have spaces within.
    """

    header: bool
    entry: Callable[[bytes, np.ndarray], bytes]
    spaces: bool


def _as_text(word: bytes, vector: np.ndarray) -> bytes:
    # the shortest numbers that give back the same float32
    return word + b" " + " ".join(vector.astype(str)).encode("ascii") + b"\n"


def _as_bytes(word: bytes, vector: np.ndarray) -> bytes:
    return word + b" " + vector.astype("<f4").tobytes() + b"\n"


FORMATS = {
    "glove": Format(header=False, entry=_as_text, spaces=True),
    "word2vec": Format(header=True, entry=_as_text, spaces=True),
    "binary": Format(header=True, entry=_as_bytes, spaces=False),
}
# What a file's name says of its format, once .gz is taken off.
ENDINGS = {".txt": "glove", ".vec": "word2vec", ".bin": "binary"}


def format_of(path: Path | str) -> str:
    """The format that a file's name asks for.

    Raises:
        ArgumentError: it asks for none.
    """
    ending = Path(str(path).removesuffix(GZIPPED)).suffix
    if ending not in ENDINGS:
        named = ", ".join(f"{known} ({name})" for known, name in ENDINGS.items())
        raise ArgumentError(f"a file of word vectors is named {named}, perhaps followed by {GZIPPED}; got {path}")
    return ENDINGS[ending]


def writable(word: str, form: str) -> bool:
    """Whether a format can hold a word, so that reading gives it back.

    Raises:
        UnknownNameError: there is no such format.
    """
    if form not in FORMATS:
        raise UnknownNameError("format of word vectors", form, FORMATS)
    within = SPACE.findall(word)
    if not word or SPACE.match(word) or SPACE.match(word[-1]):
        return False
    if not within:
        return True
    # what a word of several parts ends in would be taken for one of its vector's numbers
    return FORMATS[form].spaces and set(within) <= set(BLANKS) and not DECIMAL.fullmatch(word.split()[-1].encode())


def write(path: Path | str, vectors: WordVectors, form: str | None = None, *, gzipped: bool | None = None) -> None:
    """Write word vectors, in float32.

    Args:
        path: the file.
        vectors: what to write.
        form: glove (a word and its numbers in each line), word2vec (the same below a header, as fastText's .vec) or binary
            (word2vec's); unless given, the file's name says it by .txt, .vec or .bin.
        gzipped: whether the file is; unless given, as its name says by .gz.

    Raises:
        ArgumentError: the name says of no format, or the format cannot hold a word.
        UnknownNameError: there is no such format.
        DataError: the file cannot be written.
    """
    form = format_of(path) if form is None else form
    gzipped = str(path).endswith(GZIPPED) if gzipped is None else gzipped
    for word in vectors.words:
        if not writable(word, form):
            raise ArgumentError(f"the format {form} cannot hold the word {word!r}")
    try:
        with gzip.open(path, "wb") if gzipped else Path(path).open("wb") as file:
            for part in _parts(vectors, FORMATS[form]):
                file.write(part)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}") from error


def _parts(vectors: WordVectors, form: Format) -> Iterator[bytes]:
    if form.header:
        yield f"{len(vectors)} {vectors.width}\n".encode("ascii")
    numbers = vectors.vectors.detach().float().cpu().numpy()
    for word, vector in zip(vectors.words, numbers, strict=True):
        yield form.entry(word.encode(), vector)
