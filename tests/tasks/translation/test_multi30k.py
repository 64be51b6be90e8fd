import gzip
import hashlib
import io
from pathlib import Path
from urllib.error import URLError

import pytest

from attent.errors import DataError
from attent.tasks.translation import multi30k as module
from attent.tasks.translation.multi30k import COMMIT, FILES, multi30k

TEXTS = {"train.en.gz": b"a man\n", "tok/train.en.gz": b"a man .\n"}


@pytest.fixture(autouse=True)
def _two_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILES", {name: hashlib.sha256(text).hexdigest() for name, text in TEXTS.items()})


class Repository:
    """Answers instead of the network, from files by the end of their address."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> None:
        self.asked: list[str] = []
        self.files = files
        monkeypatch.setattr(module, "urlopen", self.open)

    def open(self, url: str, timeout: float) -> io.BytesIO:
        assert timeout > 0
        self.asked.append(url)
        for name, content in self.files.items():
            if url.endswith(name):
                return io.BytesIO(content)
        raise URLError("no such file")


GOOD = {"/raw/train.en.gz": gzip.compress(TEXTS["train.en.gz"]), "/tok/train.en": TEXTS["tok/train.en.gz"]}


def unpacked(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): gzip.decompress(path.read_bytes()) for path in files}


def test_it_is_downloaded_at_a_pinned_commit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository(monkeypatch, GOOD)
    names: list[str] = []
    assert multi30k(tmp_path, progress=names.append) == [tmp_path / name for name in TEXTS]
    assert unpacked(tmp_path) == TEXTS
    assert names == list(TEXTS)
    assert all(COMMIT in url for url in repository.asked)
    multi30k(tmp_path)
    assert len(repository.asked) == 2
    # a damaged file is fetched again
    (tmp_path / "train.en.gz").write_bytes(b"half")
    multi30k(tmp_path)
    assert unpacked(tmp_path) == TEXTS


def test_what_is_not_multi30k_never_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = "/raw/train.en.gz"
    for files, message in (
        ({file: gzip.compress(b"other", mtime=0)}, "has changed"),
        ({file: b"<html>"}, "got no gzip file"),
        ({}, r"cannot be downloaded: no such file \(alternatively, name a folder that has"),
    ):
        Repository(monkeypatch, files)
        with pytest.raises(DataError, match=message):
            multi30k(tmp_path)
        assert not unpacked(tmp_path)


def test_a_folder_is_copied_and_checked(tmp_path: Path) -> None:
    source, to = tmp_path / "from", tmp_path / "to"
    with pytest.raises(DataError, match=r"train\.en\.gz cannot be read"):
        multi30k(to, source)
    (source / "tok").mkdir(parents=True)
    for name, text in TEXTS.items():
        (source / name).write_bytes(gzip.compress(text))
    multi30k(to, source)
    assert unpacked(to) == TEXTS
    (source / "train.en.gz").write_bytes(gzip.compress(b"other"))
    with pytest.raises(DataError, match=r"is not Multi30k's"):
        multi30k(tmp_path / "again", source)


def test_the_real_files_are_these(tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILES", FILES)
    files = multi30k(tmp_path, data_folder / "multi30k")
    assert len(files) == len(FILES) == 21
    assert len(gzip.decompress((tmp_path / "train.de.gz").read_bytes()).splitlines()) == 29_000
