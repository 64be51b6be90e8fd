from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

TITLES = ["attent", "required", "extras", "missing", "devices", "extension", "processor", "cache", "data"]


def doctor(code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    command = f"{code}\nfrom attent.cli.app import run\nraise SystemExit(run(['doctor']))"
    return subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def test_it_fits_a_screen_and_names_what_it_finds(attent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTENT_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = attent("doctor")
    assert (done.code, done.err) == (0, [])
    assert [line.split()[0] for line in done.out] == TITLES
    assert f"torch {version('torch')}, numpy {version('numpy')}" in done.out[1]
    assert "cpu" in done.out[4]
    assert f"{tmp_path / 'cache' / 'attent'} (empty)" in done.out[7]
    assert done.out[8].endswith(f"{tmp_path} (ATTENT_DATA)")


def test_report_is_markdown_without_names_of_home_and_user(
    attent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / "marie"
    (home / "data").mkdir(parents=True)
    for name, value in {"HOME": home, "ATTENT_DATA": home / "data", "XDG_CACHE_HOME": tmp_path / "secret"}.items():
        monkeypatch.setenv(name, str(value))
    # Windows reads another variable
    monkeypatch.setattr(Path, "home", lambda: home)
    done = attent("doctor", "--report")
    assert (done.code, done.err) == (0, [])
    assert (done.out[0], done.out[-1]) == ("```text", "```")
    assert [line.split()[0] for line in done.out[1:-1]] == [*TITLES, "versions"]
    assert "~/data (ATTENT_DATA)" in done.out[9]
    assert done.out[8].split(maxsplit=1)[1] == "PATH (empty)"
    assert f"typer {version('typer')}" in done.out[10]


def test_report_lists_problems(attent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attent.requirements.is_older", lambda version, oldest: True)
    monkeypatch.setattr("attent.installation.is_older", lambda version, oldest: True)
    done = attent("doctor", "--report")
    assert done.code == 2
    assert any(line.startswith("broken     torch ") and "is too old" in line for line in done.out)


@pytest.mark.needs_native
def test_an_extension_may_be_missing_but_not_broken(attent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from attent.ops import native

    assert "compiled, running for " in attent("doctor").out[5]
    monkeypatch.setattr(native, "library_file", lambda: None)
    done = attent("doctor")
    assert done.code == 0 and "not compiled, and plain PyTorch computes the same, more slowly: " in done.out[5]
    (tmp_path / "broken.so").write_text("no library", encoding="utf-8")
    monkeypatch.setattr(native, "library_file", lambda: str(tmp_path / "broken.so"))
    done = attent("doctor")
    assert done.out[5].endswith("compiled, but does not load here, and plain PyTorch is used instead, more slowly")
    assert done.code == 2 and done.err[0].startswith("broken: the extension does not load (")


@pytest.mark.slow
def test_an_old_torch_is_broken_and_all_else_is_said() -> None:
    old = "import torch\ntorch.__version__ = '2.4.0'"
    done = doctor(old, ATTENT_DATA="/nowhere")
    assert done.returncode == 2
    assert [line.split()[0] for line in done.stdout.splitlines()] == [*TITLES[:4], "data"]
    assert done.stdout.splitlines()[-1].endswith("/nowhere (ATTENT_DATA), which is not a folder")
    says = "attent needs torch 2.11 or newer, got 2.4.0: pip install --upgrade 'torch>=2.11'"
    assert done.stderr == f"broken: attent cannot compute here: {says}\n"


SLOW = [pytest.param(library, marks=pytest.mark.slow) for library in ("numpy", "rich", "transformers")]


@pytest.mark.parametrize("library", ["torch", *SLOW])
def test_a_library_that_cannot_be_imported_is_no_traceback(library: str) -> None:
    done = doctor(f"import sys\nsys.modules[{library!r}] = None")
    assert done.returncode == (2 if library in ("torch", "numpy") else 0), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1].startswith("data ")
