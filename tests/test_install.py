"""scripts/install: which build of PyTorch it takes, told from what it asks pip for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere the package index has builds without CUDA alone"
)
ROOT = Path(__file__).parents[1]
CPU = "torch==2.5.1+cpu"
# An interpreter that writes down what it is asked, and whose pip finds what FOUND says; the version that it installed
# stands in a file.
PYTHON = """#!/bin/sh
echo "$*" >> asked
version() { [ -e installed ] && cat installed; }
case "$*" in
*'pip --version'*) ;;
*'pip install'*' torch') [ -z "$ERROR" ] || { printf "%b" "$ERROR" >&2; exit 1; } ;;
esac
case "$*" in
*'pip --version'*) ;;
*'pip install'*--extra-index-url*+cpu*) [ "$FOUND" = "at PyTorch's" ] && echo 2.5.1+cpu > installed ;;
*'pip install'*+cpu*) [ "$FOUND" = "in the index" ] && echo 2.5.1+cpu > installed ;;
*'pip install'*' torch') version > /dev/null || echo 2.5.1 > installed ;;
*'pip install'*) ;;
*) version ;;
esac
"""


def prepare(folder: Path, *, gpu: bool = False) -> None:
    """Copy scripts/install beside interpreters that record what they are asked."""
    for name in ("scripts", "bin", ".venv/bin"):
        (folder / name).mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "install", folder / "scripts")
    (folder / "constraints.txt").write_text("numpy==2.0.0\ntorch==2.5.1\n", encoding="utf-8")
    for name in (".venv/bin/python", *(["bin/nvidia-smi"] if gpu else [])):
        (folder / name).write_text(PYTHON, encoding="utf-8")
        (folder / name).chmod(0o755)


def run_install(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | variables | {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    command = [folder / "scripts" / "install", "plot"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def installed(folder: Path, driver: str, *, gpu: bool = False, before: str = "") -> tuple[list[str], list[str]]:
    """The packages that pip was asked for, and what was said."""
    prepare(folder, gpu=gpu)
    if before:
        (folder / "installed").write_text(f"{before}\n", encoding="utf-8")
    done = run_install(folder, FOUND=driver, ERROR="")
    assert (done.returncode, done.stderr) == (0, "")
    asked = (folder / "asked").read_text(encoding="utf-8").splitlines()
    return [line.split()[-1] for line in asked if "pip install" in line], done.stdout.splitlines()


@pytest.mark.skipif(
    any(Path("/dev").glob("nvidia*")) or shutil.which("nvidia-smi") is not None, reason="there is a GPU here"
)
@pytest.mark.parametrize(
    ("actual", "requests", "message"),
    [
        ("in the index", [CPU], "PyTorch 2.5.1+cpu: the build for CPUs, as there is no GPU here"),
        ("at PyTorch's", [CPU, CPU], "PyTorch 2.5.1+cpu: the build for CPUs, as there is no GPU here"),
        ("nowhere", [CPU, CPU, "torch"], "PyTorch 2.5.1: the build of the package index, as pip found none for CPUs"),
    ],
)
def test_without_a_gpu_a_build_for_cpus_is_taken_where_there_is_one(
    tmp_path: Path, actual: str, requests: list[str], message: str
) -> None:
    packages, lines = installed(tmp_path, actual)
    assert packages == [*requests, ".[plot]"]
    assert message in lines
    assert lines[-1] == "Installing attent[plot] (minutes the first time)"


def test_the_build_of_the_index_is_taken_for_a_gpu_and_one_that_is_there_stays(tmp_path: Path) -> None:
    packages, lines = installed(tmp_path / "gpu", "in the index", gpu=True)
    assert packages == ["torch", ".[plot]"]
    assert "PyTorch 2.5.1: the build of the package index" in lines
    for before in ("2.5.1", "2.5.1+cu124"):
        packages, lines = installed(tmp_path / before, "in the index", before=before)
        assert packages == [".[plot]"]
        assert f"PyTorch {before}: was there already" in lines


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            "WARNING: Retrying: [Errno -3] Temporary failure in name resolution\nERROR: No matching distribution\n",
            "No package index can be reached (name resolution): connect to a network, or set PIP_INDEX_URL to an index "
            "within reach\n",
        ),
        ("WARNING: cache\nERROR: Hash mismatch\n", "ERROR: Hash mismatch\n"),
    ],
)
def test_a_failed_installation_says_why_in_one_line(tmp_path: Path, error: str, message: str) -> None:
    prepare(tmp_path)
    done = run_install(tmp_path, FOUND="nowhere", ERROR=error)
    assert (done.returncode, done.stderr) == (1, message)


def test_the_readme_installs_by_two_commands() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Install\n")[2].partition("\n## ")[0]
    (block,) = section.split("```")[1::2]
    assert [line.partition("#")[0].strip() for line in block.strip().splitlines()] == ["make demo", "make test"]
