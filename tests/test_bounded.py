from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import pytest

from attent.bounded import DEEPEST, open_regular, read_json, read_text, text_of
from attent.errors import DataError

posix = pytest.mark.skipif(os.name != "posix", reason="pipes and devices have no names in the file system here")


def test_a_regular_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes("é\r\n".encode())
    (tmp_path / "link").symlink_to("text")
    for name in ("text", "link"):
        assert read_text(tmp_path / name, 4) == "é\r\n"
        with open_regular(tmp_path / name) as file:
            assert file.read() == b"\xc3\xa9\r\n"
    # a file with holes, which says that it has more than the disk, takes no memory
    with (tmp_path / "holes").open("wb") as file:
        file.truncate(2**40)
    for name in ("text", "holes"):
        with pytest.raises(DataError, match="it has more than 3 bytes"):
            read_text(tmp_path / name, 3)


@posix
def test_pipes_devices_and_folders_are_refused_at_once_and_an_open_pipe_is_bounded(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    start = time.monotonic()
    for path in (tmp_path / "pipe", tmp_path / "zeros", tmp_path):
        with pytest.raises(DataError, match="it is not a regular file"):
            read_json(path, 10**9)
    assert time.monotonic() - start < 1

    def pipe() -> io.BufferedReader:
        reading, writing = os.pipe()
        os.write(writing, "é\r\n".encode())
        os.close(writing)
        return os.fdopen(reading, "rb")

    with pipe() as short:
        assert text_of(short, 4) == "é\r\n"
    with pipe() as long, pytest.raises(DataError, match="it has more than 3 bytes"):
        text_of(long, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "^it is not UTF-8: "),
        (b"{", "^it is not valid JSON: "),
        (b"9" * 5000, "^it is not valid JSON: .*digits"),
        (b"[" * 100_000, "^it is nested more than 50 deep$"),
        (b"[" * 100_000 + b"]" * 100_000, "^it is nested more than 50 deep$"),
        (rb'{"a": "\uD800"}', "^it contains text that is not valid Unicode: surrogates not allowed$"),
        (b'{"a":' * (DEEPEST + 1) + b"1" + b"}" * (DEEPEST + 1), "^it is nested more than 50 deep$"),
    ],
)
def test_json_that_is_invalid_or_too_deep_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_json(tmp_path / "file", 10**6)
    assert "\n" not in str(caught.value)


def test_json_of_the_greatest_depth_is_read(tmp_path: Path) -> None:
    deepest = [{"a": {}}]
    for _ in range(DEEPEST - 3):
        deepest = [deepest, "[[["]
    (tmp_path / "file").write_text(json.dumps(deepest))
    assert read_json(tmp_path / "file", 10**6) == deepest
    (tmp_path / "file").write_text(json.dumps([deepest]))
    with pytest.raises(DataError, match="nested"):
        read_json(tmp_path / "file", 10**6)
