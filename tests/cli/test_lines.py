import gzip
import io
from pathlib import Path

import pytest

from attent.cli.lines import lines_of, opened, where
from attent.errors import DataError


def test_only_a_line_feed_ends_a_line() -> None:
    assert list(lines_of(io.BytesIO("\ufeffa\u2028b\r\n\nc".encode()), "-")) == ["a\u2028b", "", "c"]


def test_what_is_no_utf8_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^standard input, line 2: not UTF-8"):
        list(lines_of(io.BytesIO(b"a\n\xff"), "-"))
    assert where("x.txt") == "x.txt"


def test_what_is_no_file_is_a_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"in a file")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"packed"))
    found = [(str(tmp_path / "a"), b"in a file"), (str(tmp_path / "a.gz"), b"packed"), ("a text", b"a text"), ("\x00", b"\x00")]
    for source, text in found:
        with opened(source) as stream:
            assert stream.read() == text


def test_what_cannot_be_unpacked_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"a line\n" * 1000)
    for name, content in (("cut.gz", whole[: len(whole) // 2]), ("other.gz", b"no gzip at all")):
        (tmp_path / name).write_bytes(content)
        with opened(str(tmp_path / name)) as stream, pytest.raises(DataError, match=f"{name} cannot be read: "):
            list(lines_of(stream, str(tmp_path / name)))
