import io
import struct

import pytest

from attent.data.word_vectors import binary
from attent.data.word_vectors.report import VectorsReport
from attent.errors import DataError


def written(words: dict[str, list[float]], count: int | None = None, end: bytes = b"\n") -> bytes:
    width = len(next(iter(words.values())))
    entries = [word.encode() + b" " + struct.pack(f"<{width}f", *vector) + end for word, vector in words.items()]
    return f"{len(words) if count is None else count} {width}\n".encode() + b"".join(entries)


def read(content: bytes, wanted: set[str] | None = None) -> tuple[dict[str, list[float]], VectorsReport]:
    report = VectorsReport("x")
    blocks = list(binary.blocks(io.BytesIO(content), report, wanted))
    found = {word.decode(): vector for block in blocks for word, vector in zip(block.words, block.vectors.tolist(), strict=True)}
    return found, report


# the numbers hold the bytes of a line feed and of a space
WORDS = {"</s>": [0.0, 1.5, -2.0], "Straße": [struct.unpack("<f", b"\n\n \n")[0]] * 3, "日本": [0.25, 3.0, 7.0]}


@pytest.mark.parametrize("end", [b"\n", b""])
def test_what_word2vec_writes_is_read_and_so_is_what_gensim_writes(end: bytes) -> None:
    found, report = read(written(WORDS, end=end))
    assert found == WORDS
    assert (report.lines, report.width, report.unit, report.remarks) == (3, 3, "word", [])


def test_entries_may_lie_across_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "CHUNK", 1)
    monkeypatch.setattr(binary, "LONGEST", 9)
    words = {f"w{n}": [float(n), n / 2, n / 4] for n in range(1100)}
    assert read(written(words))[0] == words


def test_only_wanted_words_are_kept() -> None:
    found, report = read(written(WORDS), {"日本", "nowhere"})
    assert (found, report.unwanted, report.lines) == ({"日本": WORDS["日本"]}, 2, 3)


def test_a_header_that_lies_is_said() -> None:
    assert read(written(WORDS, 5))[1].remarks == ["the first line says 5 words, and there are 3"]
    found, report = read(written(WORDS, 2))
    assert (list(found), report.remarks) == (
        ["</s>", "Straße"],
        ["more follows behind the 2 words that the first line says, and was not read"],
    )


@pytest.mark.parametrize("cut", [1, 5, 13, 15])
def test_a_file_that_is_cut_off_is_an_error(cut: int) -> None:
    with pytest.raises(DataError, match=r"^x is cut off or damaged: it holds 2 of 3 words, and another that is not whole$"):
        read(written(WORDS, end=b"")[:-cut])


@pytest.mark.parametrize("content", [b"", b"words\n", b"3 0\n", b"3\n"])
def test_the_first_line_must_be_a_header(content: bytes) -> None:
    with pytest.raises(DataError, match=r"^x: the first line must be the number of words and of their features$"):
        read(content)
