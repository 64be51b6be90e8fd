"""A run folder from elsewhere: what docs/security.md promises of it, with nothing imported, nothing outside it touched."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import attent
from attent.cli.app import run as command
from attent.config.recipe import follow, resume
from attent.config.settings import parse
from attent.errors import RunError
from attent.export.exporting import export
from attent.runs.config import CONFIG
from attent.runs.folder import tokenizers_as_text
from attent.serve.opened import opened
from attent.training.progress import Progress

MODEL = "[model]\nencoder_layers = 1\ndecoder_layers = 1\nwidth = 8\nfeed_forward = 5\nheads = 2\n"
CORPUS = """
[dates]
locales = ["en"]
training_pairs = 11
validation_pairs = 5
held_out_dates = 31
held_out_pairs = 3
held_out_combinations = 1
[training]
updates = 2
batch_pairs = 8
precision = "float32"
threads = 1
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    follow(parse(MODEL + CORPUS, "tiny.toml"), folder, progress=silence())
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A run folder that each test may spoil."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def silence() -> Progress:
    return Progress(io.StringIO())


def change(run: Path, table: str | None = None, **values: Any) -> None:
    """Write values into a run's config.json, or into one of its tables."""
    content = json.loads((run / CONFIG).read_text(encoding="utf-8"))
    (content if table is None else content[table]).update(values)
    (run / CONFIG).write_text(json.dumps(content), encoding="utf-8")


def everything(folder: Path) -> dict[str, bytes | str]:
    """What lies in a folder at any depth, links as where they lead."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {
        name: str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else "" for name, path in paths.items()
    }


LOADERS: dict[str, Callable[[Path], object]] = {
    "load": attent.load,
    "explore": opened,
    "resume": lambda run: resume(run, {"updates": 3}, progress=silence()),
    "init_from": lambda run: follow(parse(CORPUS, "own.toml"), run.parent / "another", init_from=run, progress=silence()),
    "export": lambda run: export(run, "onnx"),
}


@pytest.mark.parametrize("slot", ["score", "normaliser"])
@pytest.mark.parametrize("loader", list(LOADERS))
def test_a_run_imports_no_code(run: Path, loader: str, slot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even from itself, where Python looks for modules in it."""
    (run / "stranger.py").write_text(f"open({str(run.parent / 'imported')!r}, 'w').close()\nclass Part: ...\n", encoding="utf-8")
    change(run, "model", **{slot: "stranger:Part"})
    monkeypatch.syspath_prepend(run)
    before = everything(run.parent)
    says = rf"config\.json: model\.{slot} = 'stranger:Part' would import and run the module stranger; trust_code=True \(--trust-code\)"
    with pytest.raises(RunError, match=says):
        LOADERS[loader](run)
    assert everything(run.parent) == before


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def zeros(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def holes(file: Path) -> None:
    """A file that says that it has more than the disk."""
    with file.open("wb") as stream:
        stream.truncate(2**40)


def brackets(file: Path) -> None:
    file.write_text("[" * 100_000 + "]" * 100_000, encoding="utf-8")


FILES = ["config.json", "source.tokenizer.json", "target.tokenizer.json", "model.safetensors", "checkpoints/00000002/state.json"]


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices have no names in the file system here")
@pytest.mark.parametrize("spoil", [pipe, zeros, holes, brackets])
@pytest.mark.parametrize("name", [*FILES, "checkpoints/00000002/model.safetensors", "checkpoints/00000002/optimizer.safetensors"])
def test_files_that_have_no_end_are_refused_at_once(run: Path, name: str, spoil: Callable[[Path], None]) -> None:
    spoil(run / name)
    read = resume if name.startswith("checkpoints") else attent.load
    start = time.monotonic()
    with pytest.raises(RunError, match=rf"{name.rpartition('/')[2]} ") as caught:
        resume(run, {"updates": 3}, progress=silence()) if read is resume else attent.load(run)
    assert time.monotonic() - start < 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"encoder_layers": 10**7}, r"config\.json is damaged: model: encoder_layers = 10,000,000, and model\.safetensors has \d+ tensors"),
        ({"width": 8192}, r"model\.safetensors is damaged: \S+ must be \(\d+, 8192\), got \(\d+, 8\)"),
        ({"width": 10**30}, r"config\.json is damaged: model: sizes that no memory holds"),
    ],
)
@pytest.mark.parametrize("loader", ["load", "resume", "init_from"])
def test_sizes_that_the_weights_do_not_have_are_refused(run: Path, loader: str, changes: dict[str, int], says: str) -> None:
    change(run, "model", **changes)
    start = time.monotonic()
    with pytest.raises(RunError, match=says):
        LOADERS[loader](run)
    assert time.monotonic() - start < 5


@pytest.fixture
def photos(run: Path) -> Path:
    """A folder of the victim's beside the run, with folders whose names are numbers, and a file that nobody else may read."""
    folder = run.parent / "photos"
    for year in ("2019", "2020", "20200101"):
        (folder / year).mkdir(parents=True)
        (folder / year / "beach.jpg").write_bytes(b"sea")
    shutil.copytree(run / "checkpoints" / "00000002", folder / "99990000")
    (folder / "notes.txt").write_text("mine\n", encoding="utf-8")
    (folder / "notes.txt").chmod(0o600)
    return folder


def averaged(run: Path) -> None:
    code = command(["average", str(run), "--last", "1"])
    if code != 0:
        raise RunError(f"exit {code}")


@pytest.mark.skipif(os.name != "posix", reason="links need permission here")
@pytest.mark.parametrize("change", [LOADERS["resume"], averaged])
@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("checkpoints", "photos"),
        ("checkpoints/00000002", "photos/99990000"),
        ("log.jsonl", "photos/notes.txt"),
        ("config.json", "photos/99990000/state.json"),
        (".config.json.part", "photos/notes.txt"),
        ("tensorboard", "photos"),
    ],
)
def test_nothing_is_written_through_a_link(run: Path, photos: Path, change: Callable[[Path], None], name: str, target: str) -> None:
    if (run / name).is_dir():
        shutil.rmtree(run / name)
    if name == "config.json":
        shutil.copy(run / name, run.parent / target)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(run.parent / target)
    before = everything(run.parent)
    with pytest.raises(RunError):
        change(run)
    assert everything(run.parent) == before
    assert (photos / "notes.txt").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.name != "posix", reason="links need permission here")
def test_an_export_is_not_written_through_a_link(run: Path, photos: Path) -> None:
    (run / "export").symlink_to(photos)
    before = everything(run.parent)
    with pytest.raises(RunError, match="export is a symbolic link"):
        export(run, "onnx")
    assert everything(run.parent) == before


def test_only_checkpoints_are_evicted(run: Path) -> None:
    for name in ("2019", "00000001", "²"):
        (run / "checkpoints" / name).mkdir()
        (run / "checkpoints" / name / "beach.jpg").write_bytes(b"sea")
    resume(run, {"updates": 4}, progress=silence())
    left = {path.name for path in (run / "checkpoints").iterdir()}
    assert left == {"2019", "00000001", "²", "00000004"}


@pytest.mark.parametrize("name", ["../outside", "..", "", "a/b", "a\\b", "c:a"])
def test_no_name_of_a_run_leaves_its_folder(run: Path, name: str) -> None:
    for changes in ({"files": [name]}, {"task": "classify", "tokenizers": {name: "char"}, "sizes": [5, 2]}):
        change(run, **changes)
        with pytest.raises(RunError, match=r"config\.json is damaged: tokenizers and files must lie in the run folder, got '") as caught:
            attent.load(run)
        assert repr(name) in str(caught.value)
        with pytest.raises(RunError, match="must lie in the run folder"):
            tokenizers_as_text(run)
        change(run, files=[], task="translate", tokenizers={"source": "char", "target": "char"}, sizes=None)
