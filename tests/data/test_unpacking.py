from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from attent.data import unpacking
from attent.data.readers import read_lines
from attent.data.unpacking import open_gzip
from attent.errors import DataError


@pytest.fixture
def zeros(tmp_path: Path) -> Path:
    """A file of a few hundred bytes that unpacks to 200,000."""
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a" * 200_000))
    return tmp_path / "a.gz"


def test_what_unpacks_to_a_few_times_its_size_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "ALLOWED", 100)
    text = b"".join(b"%d %d\n" % (number, number**7) for number in range(5000))
    (tmp_path / "a.gz").write_bytes(gzip.compress(text))
    with open_gzip(tmp_path / "a.gz") as stream:
        assert stream.read() == text
    assert stream.closed


def test_a_small_file_may_be_all_alike(zeros: Path) -> None:
    assert list(read_lines(zeros)) == ["a" * 200_000]


def test_what_unpacks_to_too_much_is_refused_and_named(zeros: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "ALLOWED", 60_000)
    with pytest.raises(DataError, match=r"a\.gz unpacks to more than 60,000 bytes"):
        list(read_lines(zeros))


def test_a_line_has_a_longest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "LONGEST_LINE", 10)
    assert list(unpacking.lines(io.BytesIO(b"123456789\n\n1234567890"), "a")) == [b"123456789\n", b"\n", b"1234567890"]
    (tmp_path / "a.txt").write_bytes(b"short\n" + b"long " * 3 + b"\n")
    with pytest.raises(DataError, match=r"a\.txt, line 2: has more than 10 bytes"):
        list(read_lines(tmp_path / "a.txt"))
