from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_translations_go_on_after_a_kill(
    attent, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, whole, killed = tmp_path / "lines.txt", tmp_path / "whole.txt", tmp_path / "killed.txt"
    source.write_text("".join(f"en | March {day}, 20{day:02}\n" for day in range(1, 29)), encoding="utf-8")
    options = ("translate", run_folder, source, "--beam", 2, "--format", "jsonl")
    monkeypatch.setattr("attent.cli.commands.translate.LINES", 4)
    done = attent(*options, "--out", whole)
    assert (done.code, done.out) == (2, []) and f"{whole}: 28 lines" in done.err
    assert whole.read_text(encoding="utf-8").splitlines() == attent(*options).out
    script = f"""
import os, signal, sys
from attent.runs import results
from attent.cli.app import run
from attent.cli.commands import translate
translate.LINES = 4
note = results.write_text
def kill(path, text):
    if '"lines":16' in text:
        os.kill(os.getpid(), signal.SIGKILL)
    note(path, text)
results.write_text = kill
run({[str(option) for option in (*options, "--out", killed)]!r})
"""
    assert (
        subprocess.run([sys.executable, "-c", script], check=False, capture_output=True).returncode == -signal.SIGKILL
    )
    assert not killed.exists()
    done = attent(*options, "--out", killed, "--resume")
    assert (done.code, done.err[0][:7]) == (2, "line 13")
    assert killed.read_bytes() == whole.read_bytes()
    assert attent(*options, "--out", killed, "--resume") == (0, [], [f"{killed} already exists: nothing is left to do"])
    assert attent(*options, "--out", killed).err == [
        f"attent: {killed} already exists: name another file, or remove it"
    ]
    assert attent(*options, "--resume").err == ["attent: --resume needs the file to resume: --out FILE"]
