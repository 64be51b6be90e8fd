from __future__ import annotations

import errno
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from attent.errors import RunError
from attent.runs.lock import FAR, claim

HOLDER = """
import sys
from pathlib import Path
from attent.runs.lock import claim
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
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
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
    with log.open("a") as one, log.open("a") as two:
        claim(one, Path("run"))
        with pytest.raises(RunError):
            claim(two, Path("run"))
        one.close()
        claim(two, Path("run"))


def test_without_fcntl_a_byte_is_locked_that_nobody_reads(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[int] = []

    def locking(descriptor: int, mode: int, count: int) -> None:
        places.append(os.lseek(descriptor, 0, os.SEEK_CUR))
        if len(places) > 1:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", types.SimpleNamespace(locking=locking, LK_NBLCK=2))
    with log.open("a") as mine:
        claim(mine, Path("run"))
        mine.write("more")
        with pytest.raises(RunError, match="is being trained"):
            claim(mine, Path("run"))
    assert places == [FAR, FAR]
    assert log.read_text() == "{}\nmore"


def test_where_there_are_no_locks_nothing_is_locked(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, mode: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with log.open("a") as one, log.open("a") as two:
        claim(one, Path("run"))
        monkeypatch.setitem(sys.modules, "fcntl", types.SimpleNamespace(flock=unsupported, LOCK_EX=1, LOCK_NB=2))
        claim(two, Path("run"))
        monkeypatch.setitem(sys.modules, "fcntl", None)
        monkeypatch.setitem(sys.modules, "msvcrt", None)
        claim(two, Path("run"))
