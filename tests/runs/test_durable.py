from __future__ import annotations

import errno
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from attent.errors import RunError
from attent.runs import durable
from attent.runs.durable import LOCK_OFFSET, check_links, claim, draft_of, new_file, new_folder, sweep


def content(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with new_file(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
    assert content(tmp_path) == {"a.json": "new"}


def test_a_folder_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with new_folder(tmp_path / "all" / "a") as draft:
            (draft / "file").write_text(text)
    assert content(tmp_path) == {"all/a/file": "new"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")])
def test_what_fails_leaves_the_old_one(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("old")
    with pytest.raises((RunError, KeyboardInterrupt)), new_folder(tmp_path / "folder") as draft:
        (draft / "file").write_text("half")
        raise error
    with pytest.raises((RunError, KeyboardInterrupt)), new_file(tmp_path / "folder" / "file") as draft:
        draft.write_text("half")
        raise error
    assert content(tmp_path) == {"folder/file": "old"}


def test_a_full_disk_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "sync", full)
    with (
        pytest.raises(RunError, match=r"a\.json cannot be written: No space left on device$"),
        new_file(tmp_path / "a.json") as draft,
    ):
        draft.write_text("new")
    assert content(tmp_path) == {}


def test_leavings_are_swept(tmp_path: Path) -> None:
    (draft_of(tmp_path / "folder") / "file").write_text("half")
    (tmp_path / ".a.json.part").write_text("half")
    (tmp_path / ".hidden").write_text("kept")
    sweep(tmp_path)
    assert content(tmp_path) == {".hidden": "kept"}
    sweep(tmp_path / "nowhere")


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has permissions of this kind")
def test_others_may_read_what_new_files_let_them_read(tmp_path: Path) -> None:
    with new_folder(tmp_path / "folder") as folder:
        (folder / "secret").touch(mode=0o600)
    with new_file(tmp_path / "file") as file:
        file.touch(mode=0o600)
    (tmp_path / "plain").touch()
    plain = (tmp_path / "plain").stat().st_mode & 0o777
    assert (tmp_path / "file").stat().st_mode & 0o777 == plain
    assert (tmp_path / "folder" / "secret").stat().st_mode & 0o777 == plain


def test_a_folder_that_cannot_be_replaced_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "folder"
    with new_folder(path) as folder:
        (folder / "old").touch()
    renamed = Path.rename

    def once_too_often(self: Path, target: Path) -> Path:
        if target == path and not (self / "old").exists():
            raise OSError(5, "Input/output error")
        return renamed(self, target)

    monkeypatch.setattr(Path, "rename", once_too_often)
    with pytest.raises(RunError, match="cannot be written"), new_folder(path) as folder:
        (folder / "new").touch()
    assert [file.name for file in path.iterdir()] == ["old"]
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


@pytest.mark.skipif(os.name != "posix", reason="links need permission here")
def test_no_link_is_followed_to_write_or_to_sweep(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    (tmp_path / "mine" / "file").chmod(0o600)
    for draft, target in ((".a.json.part", "mine/file"), (".b.json.part", "nowhere")):
        (tmp_path / draft).symlink_to(tmp_path / target)
    for name in ("a.json", "b.json"):
        with new_file(tmp_path / name) as file:
            file.write_text("new")
    (tmp_path / ".c.part").symlink_to(tmp_path / "mine")
    sweep(tmp_path)
    assert content(tmp_path) == {"a.json": "new", "b.json": "new", "mine/file": "mine"}
    assert (tmp_path / "mine" / "file").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / ".c.part").is_symlink()


@pytest.mark.skipif(os.name != "posix", reason="links need permission here")
def test_links_are_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    check_links(tmp_path)
    with pytest.raises(RunError, match="link is a symbolic link, and runs are not written through links"):
        check_links(tmp_path, tmp_path / "link")


HOLDER = """
import sys
from pathlib import Path
from attent.runs.durable import claim
with open(sys.argv[1], "a") as log:
    claim(log, Path("run"))
    print("mine", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "log.jsonl"
    file.write_text("{}\n")
    return file


def test_a_lock_vanishes_with_its_process(log: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"mine" + os.linesep.encode()
        with log.open("a") as mine:
            for _ in range(2):
                with pytest.raises(RunError, match=r"^run is being trained by another process$"):
                    claim(mine, Path("run"))
            # SIGKILL on Unix, as sudden on Windows
            holder.kill()
            holder.wait()
            claim(mine, Path("run"))
    assert log.read_text() == "{}\n"


def test_a_lock_is_given_back_when_its_file_is_closed(log: Path) -> None:
    with log.open("a") as first, log.open("a") as second:
        claim(first, Path("run"))
        with pytest.raises(RunError):
            claim(second, Path("run"))
        first.close()
        claim(second, Path("run"))


def test_without_fcntl_a_byte_is_locked_that_nobody_reads(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    positions: list[int] = []

    def locking(descriptor: int, mode: int, count: int) -> None:
        positions.append(os.lseek(descriptor, 0, os.SEEK_CUR))
        if len(positions) > 1:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", types.SimpleNamespace(locking=locking, LK_NBLCK=2))
    with log.open("a") as mine:
        claim(mine, Path("run"))
        mine.write("more")
        with pytest.raises(RunError, match="is being trained"):
            claim(mine, Path("run"))
    assert positions == [LOCK_OFFSET, LOCK_OFFSET]
    assert log.read_text() == "{}\nmore"


def test_where_there_are_no_locks_nothing_is_locked(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, mode: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with log.open("a") as first, log.open("a") as second:
        claim(first, Path("run"))
        monkeypatch.setitem(sys.modules, "fcntl", types.SimpleNamespace(flock=unsupported, LOCK_EX=1, LOCK_NB=2))
        claim(second, Path("run"))
        monkeypatch.setitem(sys.modules, "fcntl", None)
        monkeypatch.setitem(sys.modules, "msvcrt", None)
        claim(second, Path("run"))
