"""Word vectors from a file of any format, one piece after another."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from pathlib import Path

from attent.data.word_vectors import binary, text
from attent.data.word_vectors.gathering import Gathered
from attent.data.word_vectors.opening import opened
from attent.data.word_vectors.report import VectorsReport
from attent.data.word_vectors.vectors import WordVectors
from attent.errors import DataError

# Bytes from which the format is told.
HEAD = 2**18
# How files begin that are taken for word vectors, and are none.
OTHERS = {
    b"\xba\x16\x4f\x2f": "a fastText model; its vectors are in the .vec beside it",
    b"\x80\x02": "a pickle, as gensim saves its own; save_word2vec_format writes one to be read here",
    b"\x80\x03": "a pickle, as gensim saves its own; save_word2vec_format writes one to be read here",
    b"\x80\x04": "a pickle, as gensim saves its own; save_word2vec_format writes one to be read here",
    b"\x80\x05": "a pickle, as gensim saves its own; save_word2vec_format writes one to be read here",
}


def read(path: Path | str, words: Iterable[str] | None = None) -> WordVectors:
    """Read word vectors: GloVe's text, the text of word2vec and fastText (.vec), or word2vec's binary form; also gzipped or zipped.

    The content tells the format, whatever the name. Memory holds one copy of the vectors that are kept, and little else. Of a word
    that comes twice the first vector is kept; lines that are no word and vector are left out; both are counted in the report.

    Sources: Mikolov et al. (2013), arXiv 1301.3781; Pennington et al. (2014), "GloVe"; Bojanowski et al. (2017), arXiv 1607.04606.

    Args:
        path: the file; one of several in a zip archive is named behind it, `glove.6B.zip/glove.6B.50d.txt`.
        words: the words that are wanted, and no others are kept; all of them unless given. Damage in the others' lines is not looked for.

    Raises:
        DataError: the file cannot be read, is cut off where that can be told, is of another kind, or holds no word vectors.
    """
    report = VectorsReport(str(path))
    wanted = None if words is None else frozenset(words)
    form = binary if _is_binary(path) else text
    with opened(path) as stream:
        gathered = None
        for block in form.blocks(stream, report, wanted):
            gathered = gathered or Gathered(report.width, report, wanted)
            gathered.add(block)
    gathered = gathered or Gathered(report.width, report, wanted)
    report.words = len(gathered.rows)
    if wanted is None and not gathered.rows:
        raise DataError(f"no word vectors: {'; '.join(line.strip() for line in report.summary())}")
    return WordVectors(list(gathered.rows), gathered.vectors(), report)


def width_of(path: Path | str) -> int:
    """How many numbers each vector of a file has, told from its beginning.

    Raises:
        DataError: as `read`, as far as the beginning shows it.
    """
    report = VectorsReport(str(path))
    form = binary if _is_binary(path) else text
    with opened(path) as stream:
        next(form.blocks(stream, report), None)
    return report.width


def _is_binary(path: Path | str) -> bool:
    """Whether it is word2vec's binary form rather than text.

    Raises:
        DataError: it is neither.
    """
    with opened(path) as stream:
        head = stream.read(HEAD)
    for start, kind in OTHERS.items():
        if head.startswith(start):
            raise DataError(f"{path} holds no word vectors: it is {kind}")
    lines = head.removeprefix(text.BYTE_ORDER_MARK).split(b"\n")[: 1 + text.AHEAD]
    header = text.HEADER.fullmatch(lines[0])
    controls = bool(head.translate(None, delete=bytes(range(0x20, 0x100)) + b"\t\n\v\f\r"))
    if header:
        in_lines = text.fits(lines[1:], int(header[2])) or text.shape(lines[1:]) is not None
        return not in_lines and (controls or not _is_utf8(head))
    if controls:
        raise DataError(f"{path} holds no word vectors: it is neither text nor word2vec's binary form")
    return False


def _is_utf8(head: bytes) -> bool:
    """Whether the beginning of a file is UTF-8, be the last character cut through or not."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
