"""A run folder that has hardly been trained, and the command with what it writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from attent.cli.app import run

SMALL = """
[dates]
locales = ["en", "fr"]
training_pairs = 64
validation_pairs = 8
held_out_dates = 20
held_out_pairs = 8
held_out_combinations = 2

[model]
encoder_layers = 2
decoder_layers = 2
width = 8
feed_forward = 8
heads = 2
dropout = 0.0

[training]
updates = 2
batch_pairs = 8
precision = "float32"
"""


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
def settings_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings of a run that takes less than a second."""
    file = tmp_path_factory.mktemp("settings") / "small.toml"
    file.write_text(SMALL, encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def run_folder(settings_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder that these settings lead to."""
    from attent.config.recipe import follow
    from attent.config.settings import read

    folder = tmp_path_factory.mktemp("runs") / "small"
    follow(read(settings_file), folder)
    return folder
