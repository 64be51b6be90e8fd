import gzip
import zipfile
from pathlib import Path

import pytest

from attent.data import unpacking
from attent.data.word_vectors.opening import opened
from attent.errors import DataError

TEXT = b"cat 1 2\ndog 3 4\n" * 1000


def content(path: Path) -> bytes:
    with opened(path) as stream:
        return stream.read()


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in members.items():
            file.writestr(name.replace("_", "."), text)
    return path


def test_the_first_bytes_tell_what_a_file_is_and_its_name_does_not(tmp_path: Path) -> None:
    (tmp_path / "plain.gz").write_bytes(TEXT)
    (tmp_path / "gzipped.txt").write_bytes(gzip.compress(TEXT))
    zipped = archive(tmp_path / "zipped.bin", only_txt=TEXT)
    for path in (tmp_path / "plain.gz", tmp_path / "gzipped.txt", zipped, zipped / "only.txt"):
        assert content(path) == TEXT


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "ALLOWED", 60_000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a" * 200_000))
    for path in (tmp_path / "a.gz", archive(tmp_path / "a.zip", a_txt=b"a" * 200_000)):
        with pytest.raises(DataError, match=rf"{path.name} unpacks to more than 60,000 bytes"):
            content(path)


def test_of_several_files_in_an_archive_one_is_named_behind_it(tmp_path: Path) -> None:
    path = archive(tmp_path / "glove.zip", small_txt=b"a 1\n", large_txt=TEXT)
    assert content(path / "large.txt") == TEXT
    with pytest.raises(DataError, match=r"glove.zip holds 2 files; name one of them, as .*glove.zip/small.txt$"):
        content(path)
    with pytest.raises(DataError, match=r"glove.zip holds no other.txt, but small.txt, large.txt$"):
        content(path / "other.txt")
    with pytest.raises(DataError, match=r"empty.zip is empty$"):
        with zipfile.ZipFile(tmp_path / "empty.zip", "w") as file:
            file.writestr("__MACOSX/only.txt", b"")
        content(tmp_path / "empty.zip")


def test_what_is_cut_off_is_said(tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    for whole in (gzip.compress(TEXT), archive(tmp_path / "whole.zip", only_txt=TEXT).read_bytes()):
        path.write_bytes(whole[: len(whole) * 2 // 3])
        with pytest.raises(DataError, match=r"vectors is cut off or damaged: "):
            content(path)


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(TEXT)
    with pytest.raises(DataError, match=r"nowhere cannot be read: No such file or directory$"):
        content(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"inside cannot be read: .*plain is no zip archive$"):
        content(tmp_path / "plain" / "inside")
    # the flag of an encrypted member, in its own header and in the directory
    locked = bytearray(archive(tmp_path / "locked.zip", only_txt=TEXT).read_bytes())
    locked[6] |= 1
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "locked.zip").write_bytes(locked)
    with pytest.raises(DataError, match=r"locked.zip cannot be read: only.txt in it is encrypted$"):
        content(tmp_path / "locked.zip")
