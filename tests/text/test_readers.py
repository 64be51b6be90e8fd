from __future__ import annotations

import gzip
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from attent.errors import ArgumentError, DataError
from attent.text import readers
from attent.text.corpus import drop_shared_texts
from attent.text.readers import (
    LabelledText,
    chunks,
    limited_lines,
    open_gzip,
    read_labelled,
    read_lines,
    read_pairs,
    read_parallel,
)
from attent.text.sources import check_file, decode_lines, open_source, read_text_pairs
from attent.text.text import Pair, ReadReport


def written(path: Path, content: str | bytes) -> Path:
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def read(path: Path | str) -> tuple[list[Pair], ReadReport]:
    report = ReadReport(str(path))
    return [pair for _, pair in read_pairs(path, report)], report


class Stdin:
    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


TSV = "a b\tc\nd\te f\n"
JSONL = '{"source": "a b", "target": "c"}\n{"target": "e f", "source": "d", "more": 1}\n'
BOTH = [Pair("a b", "c"), Pair("d", "e f")]


@pytest.mark.parametrize(
    ("name", "content"), [("p.tsv", TSV), ("p.tsv.gz", TSV), ("p.jsonl", JSONL), ("p.jsonl.gz", JSONL)]
)
def test_every_format_gives_the_same_pairs(tmp_path: Path, name: str, content: str) -> None:
    pairs, report = read(written(tmp_path / name, content))
    assert pairs == BOTH
    assert (report.lines, report.kept_count, report.dropped) == (2, 2, {})


def test_two_files_are_read_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = written(tmp_path / "a.en", "a b\n\nd"), written(tmp_path / "a.de.gz", "c\nx\ne f\n")
    report = ReadReport("both")
    assert list(read_parallel(source, target, report)) == [(1, BOTH[0]), (3, BOTH[1])]
    assert report.dropped["empty source"].first == [2]
    for content in (TSV, JSONL):
        monkeypatch.setattr("sys.stdin", Stdin(content.encode()))
        assert read("-")[0] == BOTH
    monkeypatch.setattr("sys.stdin", Stdin(b"c\ne f\n"))
    pairs = read_parallel(written(tmp_path / "a", "a b\nd\n"), "-", ReadReport("both"))
    assert [pair for _, pair in pairs] == BOTH


def test_lines_end_with_a_line_feed_alone_and_are_utf8(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "\ufeffa\u2028b\x0bc\r\nd\x85e\r \n")
    assert list(read_lines(path)) == ["a\u2028b\x0bc", "d\x85e\r "]
    assert list(decode_lines(io.BytesIO("\ufeffa\u2028b\r\n\nc".encode()), "-")) == ["a\u2028b", "", "c"]
    with pytest.raises(DataError, match=r"^standard input, line 2: not UTF-8"):
        list(decode_lines(io.BytesIO(b"a\n\xff"), "-"))


def test_two_thousand_lines_and_what_was_done_with_the_strange_ones(tmp_path: Path) -> None:
    texts = [f"word {number}\tWort {number}" for number in range(1, 2001)]
    texts[16], texts[41], texts[99], texts[500] = "I 👍 it\tmir gefällt's 👍", "", "one\ttwo\tthree", "nothing between"
    pairs, report = read(written(tmp_path / "own.tsv", "\n".join(texts) + "\n"))
    assert len(pairs) == 1997
    assert Pair("I 👍 it", "mir gefällt's 👍") in pairs
    assert report.summary() == [
        f"{tmp_path / 'own.tsv'}: 2,000 lines read, 1,997 kept",
        "  1 dropped: empty line (line 42)",
        "  1 dropped: more than one tab (line 100)",
        "  1 dropped: no tab between source and target (line 501)",
        "  1 kept as written: with an emoji or another character beyond U+FFFF (line 17)",
    ]
    _, report = read(written(tmp_path / "a.tsv", "\n" * 7 + "a\tb\n \tc\nd\t\n"))
    assert report.summary()[1:] == [
        "  7 dropped: empty line (lines 1, 2, 3, …)",
        "  1 dropped: empty source (line 9)",
        "  1 dropped: empty target (line 10)",
    ]


@pytest.mark.parametrize(
    "line",
    ["{", "[1]", '{"source": "a"}', '{"source": 1, "target": "b"}', '{"source": "\\ud800", "target": "b"}', "[" * 9999],
)
def test_json_that_is_no_pair_is_dropped(tmp_path: Path, line: str) -> None:
    pairs, report = read(written(tmp_path / "a.jsonl", f'{{"source": "\\ud83d\\udc4d", "target": "b"}}\n{line}\n'))
    assert pairs == [Pair("👍", "b")]
    assert report.kept_count == 1


@pytest.mark.parametrize(("left", "right"), [(2, 5), (3, 0), (1, 2)])
def test_unequal_files_are_both_named_with_their_lines(tmp_path: Path, left: int, right: int) -> None:
    source, target = written(tmp_path / "a.en", "x\n" * left), written(tmp_path / "a.de", "y\n" * right)
    with pytest.raises(DataError, match=rf"a\.en has {left} and .*a\.de has {right}"):
        list(read_parallel(source, target, ReadReport("both")))


PACKED = gzip.compress(b"a\tb\n" * 99, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", b"a\tb\nc\t\xff\n", r"a\.tsv, line 2: not UTF-8"),
        ("a.tsv", b"", r"a\.tsv: empty"),
        ("a.jsonl.gz", gzip.compress(b"", mtime=0), r"a\.jsonl\.gz: empty"),
        ("a.tsv.gz", b"no gzip", r"a\.tsv\.gz cannot be read"),
        ("a.tsv.gz", PACKED[:-20], r"a\.tsv\.gz cannot be read"),
        ("a.tsv.gz", PACKED[:20] + b"~" * 20, r"a\.tsv\.gz cannot be read"),
        ("none.tsv", None, r"none\.tsv cannot be read"),
        ("a.csv", b"a\tb\n", r"must end in \.tsv or \.jsonl .* got .*a\.csv"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises((DataError, ArgumentError), match=message):
        read(tmp_path / name)


@pytest.fixture
def zeros(tmp_path: Path) -> Path:
    """A file of a few hundred bytes that unpacks to 200,000."""
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a" * 200_000))
    return tmp_path / "a.gz"


def test_what_unpacks_to_a_few_times_its_size_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MIN_UNPACKED", 100)
    text = b"".join(b"%d %d\n" % (number, number**7) for number in range(5000))
    (tmp_path / "a.gz").write_bytes(gzip.compress(text))
    with open_gzip(tmp_path / "a.gz") as stream:
        assert stream.read() == text
    assert stream.closed


def test_what_unpacks_to_too_much_is_refused_and_named(zeros: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a small file may be all alike
    assert list(read_lines(zeros)) == ["a" * 200_000]
    monkeypatch.setattr(readers, "MIN_UNPACKED", 60_000)
    with pytest.raises(DataError, match=r"a\.gz unpacks to more than 60,000 bytes"):
        list(read_lines(zeros))


def test_a_line_has_a_longest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_LINE", 10)
    assert list(limited_lines(io.BytesIO(b"123456789\n\n1234567890"), "a")) == [b"123456789\n", b"\n", b"1234567890"]
    (tmp_path / "a.txt").write_bytes(b"short\n" + b"long " * 3 + b"\n")
    with pytest.raises(DataError, match=r"a\.txt, line 2: has more than 10 bytes"):
        list(read_lines(tmp_path / "a.txt"))


def read_labels(path: Path | str) -> tuple[list[tuple[int, LabelledText]], ReadReport]:
    report = ReadReport(str(path))
    return read_labelled(str(path), report), report


@pytest.mark.parametrize("name", ["a.tsv.gz", "labels"])
def test_a_line_is_text_tab_label(tmp_path: Path, name: str) -> None:
    labelled, report = read_labels(written(tmp_path / name, "le 3 mars\tfr\n 3. März\t de \r\n"))
    assert labelled == [(1, LabelledText("le 3 mars", "fr")), (2, LabelledText(" 3. März", "de"))]
    assert (report.lines, report.kept_count) == (2, 2)


def test_every_line_is_accounted_for(tmp_path: Path) -> None:
    labelled, report = read_labels(
        written(tmp_path / "a.tsv", "a\tx\n\nb\n\ty\nc\t \na\tx\nd\tx\nd\ty\ne\tx\ty\n \t \nf\tz\n")
    )
    assert [number for number, _ in labelled] == [1, 11]
    assert {reason: tally.first for reason, tally in report.dropped.items()} == {
        "empty line": [2, 10],
        "no tab between text and label": [3],
        "empty text": [4],
        "empty label": [5],
        "more than one tab": [9],
        "the same text and label as before": [6],
        "the text has other labels on other lines": [7, 8],
    }
    assert report.kept_count == len(labelled)
    with pytest.raises(DataError, match=r"empty$"):
        read_labels(written(tmp_path / "a.tsv", ""))
    message = "no line contains a text and a label; .*: 2 lines read, 0 kept; 2 dropped: no tab"
    with pytest.raises(DataError, match=message):
        read_labels(written(tmp_path / "a.tsv", "one text\nanother\n"))


def test_texts_held_out_are_not_trained_on(tmp_path: Path) -> None:
    labelled, report = read_labels(written(tmp_path / "a.tsv", "a\tx\nb\ty\nc\tx\n"))
    kept = drop_shared_texts(labelled, [LabelledText("b", "another")], report)
    assert [example.text for _, example in kept] == ["a", "c"]
    assert report.dropped["the text is also in validation"].first == [2]
    with pytest.raises(DataError, match="no text is left to train on"):
        drop_shared_texts(labelled, [example for _, example in labelled], report)


@pytest.mark.parametrize(("limit", "good"), [(1, 0), (1, 3), (2, 4), (3, 3), (4, 1)])
def test_what_stands_before_an_error_comes_first(limit: int, good: int) -> None:
    read = 0

    def broken() -> Iterator[int]:
        nonlocal read
        while read < good:
            read += 1
            yield read
        raise DataError("no more")

    sizes: list[int] = []
    with pytest.raises(DataError, match="no more"):
        for chunk in chunks(broken(), limit):
            sizes += chunk
            # nothing is read ahead, so that who types has an answer to each line
            assert len(chunk) <= limit
            assert read == len(sizes)
    assert sizes == list(range(1, good + 1))
    expected = [list(range(good))[at : at + limit] for at in range(0, good, limit)]
    assert list(chunks(iter(range(good)), limit)) == expected


def test_what_is_no_file_is_a_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"in a file")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"packed"))
    files = {str(tmp_path / "a"): b"in a file", str(tmp_path / "a.gz"): b"packed"}
    for source, text in {**files, "a text": b"a text", "\x00": b"\x00", "": b""}.items():
        with open_source(source) as stream:
            assert stream.read() == text


@pytest.mark.skipif(os.name != "posix", reason="pipes have no names in the file system here")
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_pipe_is_a_file(tmp_path: Path, ending: str) -> None:
    os.mkfifo(pipe := tmp_path / f"pipe{ending}")
    check_file(pipe)
    content = b"a line\n" * 1000
    writer = threading.Thread(target=lambda: pipe.write_bytes(gzip.compress(content) if ending else content))
    writer.start()
    with open_source(str(pipe)) as stream:
        assert stream.read() == content
    writer.join()
    for name in ("", tmp_path, tmp_path / "none"):
        with pytest.raises(ArgumentError, match=r"is not a file$"):
            check_file(name)


def test_what_cannot_be_unpacked_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"a line\n" * 1000)
    for name, content in (("cut.gz", whole[: len(whole) // 2]), ("other.gz", b"no gzip at all")):
        (tmp_path / name).write_bytes(content)
        with open_source(str(tmp_path / name)) as stream, pytest.raises(DataError, match=f"{name} cannot be read: "):
            list(decode_lines(stream, str(tmp_path / name)))


def test_both_files_have_as_many_lines(tmp_path: Path) -> None:
    first, second = tmp_path / "one.txt", tmp_path / "other.txt"
    first.write_text("a\nb\n")
    second.write_text("a\n")
    for source, target in ((first, second), (second, first)):
        read = read_text_pairs(str(source), str(target))
        assert next(read) == ("a", "a")
        with pytest.raises(DataError, match=rf"{second.name} ends before line 2 of .*{first.name}"):
            next(read)
