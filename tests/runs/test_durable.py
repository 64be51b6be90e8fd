import errno
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from attent.errors import RunError
from attent.runs import durable
from attent.runs.durable import LOCK_OFFSET, claim, draft_of, new_file, new_folder, sweep


def content(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_files_and_folders_take_their_place_when_they_are_whole(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with new_folder(tmp_path / "all" / "a") as draft:
            (draft / "file").write_text(text)
    with new_file(tmp_path / "all" / "a" / "file") as draft:
        draft.write_text("newer")
        assert content(tmp_path / "all" / "a") == {"file": "new", ".file.part": "newer"}
    assert content(tmp_path) == {"all/a/file": "newer"}


@pytest.mark.parametrize("where", ["killed", "in the block", "in sync"])
def test_a_failure_leaves_the_old_one_and_a_full_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fails(*_: object) -> None:
        raise KeyboardInterrupt if where == "killed" else OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("old")
    if where == "in sync":
        monkeypatch.setattr(durable, "sync", fails)
    for writer, path, name in ((new_folder, tmp_path / "folder", "file"), (new_file, tmp_path / "folder" / "file", "")):
        with pytest.raises((RunError, KeyboardInterrupt)) as caught, writer(path) as draft:
            (draft / name).write_text("half")
            if where != "in sync":
                fails()
        assert where == "killed" or str(caught.value) == f"{path} cannot be written: No space left on device"
    assert content(tmp_path) == {"folder/file": "old"}


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
    (file := tmp_path / "log.jsonl").write_text("{}\n")
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


def test_without_fcntl_a_byte_is_locked_that_nobody_reads(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    positions: list[int] = []

    def locking(descriptor: int, mode: int, count: int) -> None:
        positions.append(os.lseek(descriptor, 0, os.SEEK_CUR))
        # one byte from there: a second would lie beyond the largest offset
        assert (mode, count) == (2, 1)
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
        assert claim(first, Path("run"))
        monkeypatch.setitem(sys.modules, "fcntl", types.SimpleNamespace(flock=unsupported, LOCK_EX=1, LOCK_NB=2))
        assert not claim(second, Path("run"))
        monkeypatch.setitem(sys.modules, "fcntl", None)
        monkeypatch.setitem(sys.modules, "msvcrt", None)
        claim(second, Path("run"))
