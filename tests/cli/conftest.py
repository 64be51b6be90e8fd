"""Run folders after two updates of training, and the command with its output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from attent.cli.app import run


class Done(NamedTuple):
    """The exit code of a command, and its lines of output."""

    code: int
    out: list[str]
    err: list[str]


Attent = Callable[..., Done]


@pytest.fixture
def attent(capsys: pytest.CaptureFixture[str]) -> Attent:
    """A function that runs `attent`."""

    def command(*arguments: object) -> Done:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        written = capsys.readouterr()
        return Done(code, written.out.splitlines(), written.err.splitlines())

    return command


@pytest.fixture
def refused(attent: Attent) -> Callable[..., str]:
    """A function that runs `attent`, which must fail with one line, and returns that line."""

    def command(*arguments: object) -> str:
        done = attent(*arguments)
        assert (done.code, done.out, len(done.err)) == (2, [], 1), done
        assert done.err[0].startswith("attent: ")
        return done.err[0].removeprefix("attent: ")

    return command


@pytest.fixture(scope="session")
def run_folder(settings_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder trained by the small settings."""
    from attent.tasks.recipe import follow
    from attent.tasks.settings import read

    folder = tmp_path_factory.mktemp("runs") / "small"
    follow(read(settings_file), folder)
    return folder


CAPTIONS = """
task = "fill-mask"
[lines]
train = "train.txt"
[model]
layers = 1
width = 8
feed_forward = 8
heads = 2
[training]
updates = 2
batch_pairs = 8
precision = "float32"
"""


@pytest.fixture(scope="session")
def filling_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a masked language model, with its train.txt and captions.toml beside it."""
    return _train_on_captions(tmp_path_factory.mktemp("filling"), CAPTIONS)


@pytest.fixture(scope="session")
def generating_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a language model, with its train.txt and captions.toml beside it."""
    settings = CAPTIONS.replace("fill-mask", "text-generation").replace(
        '"train.txt"', '"train.txt"\ntokenizer = "word"'
    )
    return _train_on_captions(tmp_path_factory.mktemp("generating"), settings)


@pytest.fixture(scope="session")
def classifying_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a classifier that reads 11 characters."""
    from attent.tasks.recipe import follow
    from attent.tasks.settings import parse

    folder = tmp_path_factory.mktemp("classifying")
    corpus = f'[labelled]\ntrain = "{folder}/a.tsv"\ntokenizer = "char"'
    tables = CAPTIONS.replace("fill-mask", "classify").replace('[lines]\ntrain = "train.txt"', corpus)
    tables = tables.replace("heads = 2", 'heads = 2\nposition = "learned"\nmaximum_length = 12')
    lines = "".join(f"text {number}\t{'xy'[number % 2]}\n" for number in range(40))
    (folder / "a.tsv").write_text(lines, encoding="utf-8")
    follow(parse(tables, "classifying.toml"), folder / "run")
    return folder / "run"


def _train_on_captions(folder: Path, settings: str) -> Path:
    from attent.tasks.overrides import resolve_corpus
    from attent.tasks.recipe import follow
    from attent.tasks.settings import read

    (folder / "captions.toml").write_text(settings, encoding="utf-8")
    states = (("tired", "slept"), ("happy", "ran"))
    lines = [f"the {noun} was {state} , so it {verb} ." for noun in ("dog", "cat") for state, verb in states]
    (folder / "train.txt").write_text("\n".join([*lines, *(f"{line} yes" for line in lines)]) + "\n", encoding="utf-8")
    follow(resolve_corpus(read(folder / "captions.toml"), folder), folder / "run")
    return folder / "run"
