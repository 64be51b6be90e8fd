"""A new task is one folder: the one of docs/adding-a-task.md, used by the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

import attent

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-task.md"
COMMANDS = """
import attent
from attent.cli.app import run

for arguments in (
    ["train", "--config", "backwards.toml", "--out", "run"],
    ["evaluate", "run", "--json"],
    ["show", "run", "the cat saw"],
    ["walk", "run", "the cat saw"],
):
    assert not run(arguments)
    print(end="\\0")
generator = attent.load("run")
print(type(generator).__name__, "writes lines backwards" in repr(generator))
"""


@pytest.mark.slow
def test_a_task_is_one_folder(tmp_path: Path) -> None:
    """A copy of the package with one folder more, nothing else touched."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = dict(re.findall(r"^```(python|toml)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    package = Path(str(attent.__file__)).parent
    copytree(package, tmp_path / "attent")
    folder = tmp_path / "attent" / "tasks" / "backwards"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "task.py").write_text(blocks["python"], encoding="utf-8")
    (tmp_path / "backwards.toml").write_text(blocks["toml"], encoding="utf-8")
    lines = [f"the {animal} saw {number} birds ." for animal in ("cat", "dog", "cow") for number in range(20)]
    (tmp_path / "train.txt").write_text("\n".join(lines), encoding="utf-8")

    command, path = [sys.executable, "-c", COMMANDS], {"PYTHONPATH": str(tmp_path)}
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", env=os.environ | path)
    assert process.returncode == 0, process.stderr
    trained, evaluated, shown, walked, loaded = process.stdout.split("\0")
    assert trained.startswith("run: run")
    scores = json.loads(evaluated)
    assert scores["validation"]["lines"] > 0
    assert scores == json.loads((tmp_path / "run" / "config.json").read_text())["results"]
    assert "decoder" in shown
    assert "softmax" in walked
    assert loaded.split() == ["TextGenerator", "True"]
