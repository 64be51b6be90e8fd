"""A run folder that has hardly been trained, and the command with what it writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from attent.cli.app import run


class Done(NamedTuple):
    """How a command ended, and the lines that it wrote."""

    code: int
    out: list[str]
    err: list[str]


Attent = Callable[..., Done]


@pytest.fixture
def attent(capsys: pytest.CaptureFixture[str]) -> Attent:
    """Runs the command."""

    def command(*arguments: object) -> Done:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        written = capsys.readouterr()
        return Done(code, written.out.splitlines(), written.err.splitlines())

    return command


@pytest.fixture(scope="session")
def run_folder(settings_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder that these settings lead to."""
    from attent.config.recipe import follow
    from attent.config.settings import read

    folder = tmp_path_factory.mktemp("runs") / "small"
    follow(read(settings_file), folder)
    return folder
