import gzip
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from attent.errors import ArgumentError, DataError
from attent.text.readers import chunks
from attent.text.sources import check_file, decode_lines, open_source, read_text_pairs


def test_lines_end_with_a_line_feed_alone_and_are_utf8() -> None:
    assert list(decode_lines(io.BytesIO("\ufeffa\u2028b\r\n\nc".encode()), "-")) == ["a\u2028b", "", "c"]
    with pytest.raises(DataError, match=r"^standard input, line 2: not UTF-8"):
        list(decode_lines(io.BytesIO(b"a\n\xff"), "-"))


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
