import io
import struct

import numpy as np
import pytest

from attent.errors import DataError
from attent.text import vector_formats
from attent.text.readers import EMPTY_LINE
from attent.text.vector_formats import NO_NUMBER, OTHER_WIDTH, VectorsReport, binary_blocks, is_writable, text_blocks

Read = tuple[dict[str, list[float]], VectorsReport]


def read_blocks(parse, content: str | bytes, words: set[str] | None = None) -> Read:
    report = VectorsReport("x")
    values: dict[str, list[float]] = {}
    for block in parse(io.BytesIO(content.encode() if isinstance(content, str) else content), report, words):
        assert len(block.numbers) == len(block.words) == len(block.vectors)
        assert block.vectors.dtype == np.float32
        values |= {word.decode(): vector for word, vector in zip(block.words, block.vectors.tolist(), strict=True)}
    return values, report


def read_text(content: str | bytes, words: set[str] | None = None) -> Read:
    return read_blocks(text_blocks, content, words)


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
    vectors, report = read_text(header + end.join(lines))
    assert vectors == {"Straße": [0.5, np.float32(-0.01), 3], "42": [1, 2, 0.25]}
    assert (report.width, report.lines, report.summary()[1:]) == (3, 2 + bool(header.strip("\ufeff")), [])


def test_a_word_may_have_spaces_within_but_no_number_at_its_end() -> None:
    vectors, report = read_text("cat 1 2 3\n. . . 4 5 6\nat name@domain.com 0.5 0.5 0.5\n1 3/4 7 8 9\n\xa0 1 1 1\n")
    assert list(vectors) == ["cat", ". . .", "at name@domain.com", "1 3/4", "\xa0"]
    assert (vectors[". . ."], report.dropped) == ([4, 5, 6], {})
    assert not any(is_writable(word, "glove") for word in ("a 0.5", "dog 1e-05", "dog nan"))
    assert is_writable("at 5", "glove")


def test_lines_that_are_none_are_dropped_and_numbered() -> None:
    vectors, report = read_text("a 1 2 3\nb 1 2\n\nc 1 x 3\nd 0.1 1.0 2 3\n 1 2 3\nnan 1 2 3\ne 1e-5 1 2 3\n   \n")
    assert list(vectors) == ["a", "nan"]
    assert dropped(report) == {OTHER_WIDTH: [2, 5, 6], EMPTY_LINE: [3, 9], NO_NUMBER: [4]}
    assert (report.lines, report.dropped[OTHER_WIDTH].count) == (9, 4)


def test_a_header_that_lies_is_said() -> None:
    vectors, report = read_text("7 5\na 1 2 3\nb 4 5 6\n")
    assert vectors == {"a": [1, 2, 3], "b": [4, 5, 6]}
    assert report.remarks == [
        "the first line says 7 words, but 2 lines follow",
        "the first line says 5 numbers per word, but lines have 3",
    ]
    # it decides where lines are at odds
    assert list(read_text("2 3\na 1 2\nb 1 2 3\n")[0]) == ["b"]
    assert list(read_text("a 1 2\nb 1 2 3\nc 4 5 6\n")[0]) == ["b", "c"]


def test_only_lines_of_wanted_words_are_read() -> None:
    lines = [f"w{n} {n} 1" for n in range(2000)]
    content = "\n".join([*lines, ". . 3 4", "w7 broken", "w8 broken"])
    vectors, report = read_text(content, {"w1999", "w8", ". .", "nowhere"})
    assert vectors == {"w8": [8, 1], "w1999": [1999, 1], ". .": [3, 4]}
    assert (report.lines, report.skipped, dropped(report)) == (2003, 1999, {OTHER_WIDTH: [2003]})


def test_a_block_with_a_damaged_line_loses_that_line_alone() -> None:
    lines = [f"w{n} {n} 0.5" for n in range(1500)]
    lines[700] = "w700 700 oops"
    vectors, report = read_text("\n".join(lines))
    assert vectors == {f"w{n}": [n, 0.5] for n in range(1500) if n != 700}
    assert dropped(report) == {NO_NUMBER: [701]}
    for rest in ("", "b 1\nc 1 2"):
        assert read_text("a 1e39 0\n" + rest)[0]["a"][0] == float("inf")


@pytest.mark.parametrize("content", ["the cat sat on the mat\nand so on\n", "7 3\n", "\n\n"])
def test_prose_is_no_file_of_vectors(content: str) -> None:
    with pytest.raises(DataError, match=r"^x: none of the first \d+ lines"):
        read_text(content)


def encode(words: dict[str, list[float]], count: int | None = None, end: bytes = b"\n") -> bytes:
    width = len(next(iter(words.values())))
    entries = [word.encode() + b" " + struct.pack(f"<{width}f", *vector) + end for word, vector in words.items()]
    return f"{len(words) if count is None else count} {width}\n".encode() + b"".join(entries)


def read_binary(content: bytes, words: set[str] | None = None) -> Read:
    return read_blocks(binary_blocks, content, words)


# the numbers hold the bytes of a line feed and of a space
WORDS = {"</s>": [0.0, 1.5, -2.0], "Straße": [struct.unpack("<f", b"\n\n \n")[0]] * 3, "日本": [0.25, 3.0, 7.0]}


@pytest.mark.parametrize("end", [b"\n", b""])
def test_what_word2vec_writes_is_read_and_so_is_what_gensim_writes(end: bytes) -> None:
    vectors, report = read_binary(encode(WORDS, end=end))
    assert vectors == WORDS
    assert (report.lines, report.width, report.unit, report.remarks) == (3, 3, "word", [])


def test_entries_may_lie_across_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_formats, "CHUNK", 1)
    monkeypatch.setattr(vector_formats, "MAX_WORD", 9)
    words = {f"w{n}": [float(n), n / 2, n / 4] for n in range(1100)}
    assert read_binary(encode(words))[0] == words


def test_a_binary_header_that_lies_is_said() -> None:
    assert read_binary(encode(WORDS, 5))[1].remarks == ["the first line says 5 words, but there are 3"]
    vectors, report = read_binary(encode(WORDS, 2))
    assert (list(vectors), len(report.remarks)) == (["</s>", "Straße"], 1)
    assert "data after the 2 words" in report.remarks[0]


@pytest.mark.parametrize("cut", [1, 5, 13, 15])
def test_a_file_that_is_cut_off_is_an_error(cut: int) -> None:
    with pytest.raises(DataError, match="cut off or damaged: it contains 2 of 3 words"):
        read_binary(encode(WORDS, end=b"")[:-cut])


@pytest.mark.parametrize("content", [b"", b"words\n", b"3 0\n", b"3\n", b"3 2000000\n"])
def test_the_first_line_must_be_a_header(content: bytes) -> None:
    with pytest.raises(DataError, match=r"^x: the first line must be"):
        read_binary(content)
