from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from attent.experiments import machine
from attent.experiments.machine import memory_growth, run_in_process


def test_what_measured_is_named() -> None:
    found = machine.machine_info()
    assert found["processor"] == machine.processor() != ""
    assert found["threads"] == torch.get_num_threads()
    assert found["torch"] == torch.__version__
    assert int(found["cores"]) >= 1


def test_the_commit_is_that_of_a_checkout_which_has_the_file(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        author = ("-c", "user.name=one", "-c", "user.email=one@example.org")
        return subprocess.run(
            ["git", *author, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()

    file, installed = tmp_path / "module.py", tmp_path / "site-packages" / "module.py"
    file.write_text("1")
    assert machine.revision(file) is None
    git("init", "--quiet")
    git("add", "module.py")
    git("commit", "--quiet", "--message", "One")
    commit = git("rev-parse", "--short", "HEAD")
    assert machine.revision(file) == commit
    file.write_text("2")
    assert machine.revision(file) == f"{commit}*"
    installed.parent.mkdir()
    installed.write_text("1")
    assert machine.revision(installed) is None


@pytest.mark.skipif(platform.system() == "Windows", reason="Windows is not asked")
def test_the_peak_grows_with_what_is_held() -> None:
    before = machine.peak_memory() or 0
    held = np.ones(64 * 2**17)  # 64 MiB
    after = machine.peak_memory() or 0
    assert after >= before > 0
    assert (machine.total_memory() or 0) > after >= held.nbytes / 2**20


def _add(a: int, b: int) -> tuple[int, int]:
    return a + b, os.getpid()


def _die() -> None:
    os._exit(9)


def _held(size: int) -> float | None:
    return memory_growth(lambda: np.ones(size * 2**17))


def test_a_function_runs_in_a_process_of_its_own() -> None:
    found = run_in_process(_add, 2, 5)
    assert found[0] == 7
    assert found[1] != os.getpid()


def test_a_process_that_dies_has_nothing_to_say() -> None:
    assert run_in_process(_die) is None


@pytest.mark.skipif(platform.system() == "Windows", reason="Windows is not asked")
def test_what_work_holds_is_seen() -> None:
    # in a new process, for this one has held more before
    found = run_in_process(_held, 64)
    assert 60 < found < 80
