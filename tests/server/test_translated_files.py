"""Translated documents: bounded in all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from attent.server.translated_files import TranslatedFiles, safe_name


def test_the_oldest_go_where_there_are_too_many_bytes() -> None:
    files = TranslatedFiles(60, max_bytes=25)
    keys = [files.save(bytes(10), f"{number}.txt") for number in range(3)]
    assert [files.find(key) is not None for key in keys] == [False, True, True]
    assert sum(path.stat().st_size for path in files._folder.path.iterdir()) == 20
    # one that is too large by itself is the only one
    keys = [*keys, files.save(bytes(30), "large.txt")]
    assert [files.find(key) is not None for key in keys] == [False, False, False, True]
    files.close()
    files.close()


@pytest.mark.usefixtures("windows")
def test_on_windows_a_document_that_is_being_sent_is_deleted_at_the_end(temporary: Path) -> None:
    files = TranslatedFiles(0)
    key = files.save(b"a", "a.txt")
    with next(iter(files._folder.path.iterdir())).open("rb") as sent:
        assert files.find(key) is None
        assert sent.read() == b"a"
    files.close()
    assert not [*temporary.iterdir()]


def test_names_are_those_of_files() -> None:
    assert safe_name('a"\r\nSet-Cookie: x=y;\u2028.txt') == "a_Set-Cookie_x_y_.txt"
    assert safe_name("C:\\x\\a b.txt") == "a_b.txt"
    assert safe_name("a" * 300 + ".txt") == "a" * 100 + ".txt"
    assert safe_name("..txt") == "document.txt"
    assert safe_name("/") == safe_name("") == "document"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_that_was_cleared_away_is_made_anew(temporary: Path) -> None:
    files = TranslatedFiles(60)
    lost = files.save(b"a", "a.txt")
    folder = files._folder.path
    shutil.rmtree(folder)
    # somebody makes a folder of this name, to read what is put into it
    folder.mkdir(mode=0o777)
    key = files.save(b"b", "b.txt")
    assert files.find(lost) is None
    assert files.find(key).path.read_bytes() == b"b"
    assert files.find(key).path.parent != folder
    assert files.find(key).path.parent.stat().st_mode & 0o777 == 0o700
    files.close()
    assert [*temporary.iterdir()] == [folder] and not [*folder.iterdir()]


KILLED = """
import os, signal
from attent.server.translated_files import TranslatedFiles
TranslatedFiles(60).save(b"secret", "a.txt")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs locks on folders")
def test_a_killed_servers_documents_are_deleted_at_the_next_start(temporary: Path) -> None:
    living = TranslatedFiles(60)
    key = living.save(b"a", "a.txt")
    subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, "TMPDIR": str(temporary)}, check=False)
    (killed,) = {*temporary.iterdir()} - {living._folder.path}
    assert [path.read_bytes() for path in killed.iterdir()] == [b"secret"]
    # a link of such a name, and what it leads to, stay
    (temporary / "own").mkdir()
    (temporary / "own" / "a").touch()
    (temporary / "attent-documents-link").symlink_to(temporary / "own")
    TranslatedFiles(60)
    assert {path.name for path in temporary.iterdir()} == {living._folder.path.name, "own", "attent-documents-link"}
    assert (temporary / "own" / "a").exists()
    assert living.find(key).path.read_bytes() == b"a"
    living.close()
    assert {path.name for path in temporary.iterdir()} == {"own", "attent-documents-link"}
