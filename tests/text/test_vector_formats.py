import io
import struct

import numpy as np
import pytest

from attent.errors import DataError
from attent.text.readers import EMPTY_LINE
from attent.text.vector_formats import NO_NUMBER, OTHER_WIDTH, VectorsReport, entries

Read = tuple[dict[str, list[float]], VectorsReport]


def read(content: str | bytes, words: set[bytes] | None = None) -> Read:
    report = VectorsReport("x")
    values: dict[str, list[float]] = {}
    stream = io.BufferedReader(io.BytesIO(content.encode() if isinstance(content, str) else content))
    for _, word, vector in entries(stream, report, words):
        assert (vector.dtype, vector.shape) == (np.float32, (report.width,))
        values[word.decode()] = vector.tolist()
    return values, report


def dropped(report: VectorsReport) -> dict[str, list[int]]:
    return {reason: tally.first for reason, tally in report.dropped.items()}


@pytest.mark.parametrize(
    ("header", "end", "between"),
    [
        ("", "\n", " "),
        ("2 3\n", "\r\n", "\t"),
        ("2\t3 \r\n", " \n", " "),
        ("\ufeff2 3\n", "\n", "\t"),
        ("\ufeff", "\r\n", " "),
    ],
)
def test_all_ways_to_write_the_same_are_read_alike(header: str, end: str, between: str) -> None:
    lines = (between.join(line.split()) for line in ("Straße 0.5 -1e-2 3", "42 1 2 .25"))
    vectors, report = read(header + end.join(lines))
    assert vectors == {"Straße": [0.5, np.float32(-0.01), 3], "42": [1, 2, 0.25]}
    assert (report.width, report.lines, report.summary()[1:]) == (3, 2 + bool(header.strip("\ufeff")), [])


def test_a_word_may_have_spaces_within_but_no_number_at_its_end() -> None:
    vectors, report = read("cat 1 2 3\n. . . 4 5 6\nat name@domain.com 0.5 0.5 0.5\n1 3/4 7 8 9\n\xa0 1 1 1\n")
    assert list(vectors) == ["cat", ". . .", "at name@domain.com", "1 3/4", "\xa0"]
    assert (vectors[". . ."], report.dropped) == ([4, 5, 6], {})


def test_lines_that_are_none_are_dropped_and_numbered() -> None:
    vectors, report = read("a 1 2 3\nb 1 2\n\nc 1 x 3\nd 0.1 1.0 2 3\n 1 2 3\nnan 1 2 3\ne 1e-5 1 2 3\n   \n")
    assert list(vectors) == ["a", "nan"]
    assert dropped(report) == {OTHER_WIDTH: [2, 5, 6], EMPTY_LINE: [3, 9], NO_NUMBER: [4]}
    assert (report.lines, report.dropped[OTHER_WIDTH].count) == (9, 4)


def test_a_header_that_lies_is_said() -> None:
    vectors, report = read("7 3\na 1 2 3\nb 4 5 6\n")
    assert vectors == {"a": [1, 2, 3], "b": [4, 5, 6]}
    assert report.summary()[0].endswith("; the first line says 7 words")
    # it decides where lines are at odds, and without one the first line does
    assert list(read("2 3\na 1 2\nb 1 2 3\n")[0]) == ["b"]
    assert list(read("a 1 2\nb 1.0 2 3\nc 4 5\n")[0]) == ["a", "c"]
    with pytest.raises(DataError, match="x is cut off or damaged: it contains 0 of 7 words"):
        read("7 5\na 1 2 3\nb 4 5 6\n")


def test_only_lines_of_wanted_words_are_read() -> None:
    lines = [f"w{n} {n} 1" for n in range(2000)]
    content = "\n".join([*lines, ". . 3 4", "w7 broken", "w8 broken"])
    vectors, report = read(content, {b"w1999", b"w8", b".", b"nowhere"})
    assert vectors == {"w8": [8, 1], "w1999": [1999, 1], ". .": [3, 4]}
    assert (report.lines, dropped(report)) == (2003, {OTHER_WIDTH: [2003]})


def test_a_number_beyond_float32_is_infinite() -> None:
    assert read("a 1e39 0\nb 1")[0]["a"] == [float("inf"), 0]


@pytest.mark.parametrize("content", ["the cat sat on the mat\nand so on\n", "7 3\nx", "\n\n"])
def test_prose_is_no_file_of_vectors(content: str) -> None:
    with pytest.raises(DataError, match=r"^x: line 1 is not|^x is cut off"):
        read(content)


def encode(words: dict[str, list[float]], count: int | None = None, end: bytes = b"\n") -> bytes:
    width = len(next(iter(words.values())))
    entries = [word.encode() + b" " + struct.pack(f"<{width}f", *vector) + end for word, vector in words.items()]
    return f"{len(words) if count is None else count} {width}\n".encode() + b"".join(entries)


# the numbers hold the bytes of a line feed and of a space
WORDS = {"</s>": [0.0, 1.5, -2.0], "Straße": [struct.unpack("<f", b"\n\n \n")[0]] * 3, "日本": [0.25, 3.0, 7.0]}


@pytest.mark.parametrize("end", [b"\n", b""])
def test_what_word2vec_writes_is_read_and_so_is_what_gensim_writes(end: bytes) -> None:
    vectors, report = read(encode(WORDS, end=end))
    assert vectors == WORDS
    assert (report.lines, report.width, report.unit, len(report.summary())) == (3, 3, "word", 1)
    assert list(read(encode(WORDS, end=end), {"日本".encode()})[0]) == ["日本"]


def test_a_binary_header_that_lies_is_said() -> None:
    assert (
        read(encode(WORDS, 5))[1]
        .summary()[0]
        .endswith("3 words read, 0 vectors of 3 numbers kept; the first line says 5 words")
    )
    assert list(read(encode(WORDS, 2))[0]) == ["</s>", "Straße"]


@pytest.mark.parametrize("cut", [1, 5, 13, 15])
def test_a_file_that_is_cut_off_is_an_error(cut: int) -> None:
    with pytest.raises(DataError, match="cut off or damaged: it contains 2 of 3 words"):
        read(encode(WORDS, end=b"")[:-cut])


def test_a_word_without_end_is_an_error() -> None:
    with pytest.raises(DataError, match="cut off or damaged: it contains 0 of 2 words"):
        read(b"2 3\n" + b"w" * 10_000)


@pytest.mark.parametrize(
    "content", [b"3 0\n", b"3 2000000\n", b"9" * 99 + b" 3\ncat \x00\x01", b"1 " + b"9" * 9999 + b"\n"]
)
def test_the_header_must_say_a_width(content: bytes) -> None:
    with pytest.raises(DataError, match=r"^x: the first line must be"):
        read(content)
