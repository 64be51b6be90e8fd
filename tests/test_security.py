"""A run folder from elsewhere.

What docs/security.md promises of it, with nothing imported, nothing outside it touched.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import attent
from attent.cli.app import run as command
from attent.errors import RunError
from attent.explorer.loaded_run import load_run
from attent.formats.exporting import export
from attent.runs.config import CONFIG
from attent.runs.folder import tokenizers_as_text
from attent.runs.weights import digest, read_tensors, write_tensors
from attent.tasks.recipe import follow, resume
from attent.tasks.settings import parse
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
        name: str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        for name, path in paths.items()
    }


LOADERS: dict[str, Callable[[Path], object]] = {
    "load": attent.load,
    "explore": load_run,
    "resume": lambda run: resume(run, {"updates": 3}, progress=silence()),
    "init_from": lambda run: follow(
        parse(CORPUS, "own.toml"), run.parent / "another", init_from=run, progress=silence()
    ),
    "export": lambda run: export(run, "onnx"),
}


@pytest.mark.parametrize(("loader", "slot"), [*((loader, "score") for loader in LOADERS), ("load", "normalizer")])
def test_a_run_imports_no_code(run: Path, loader: str, slot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even from itself, where Python looks for modules in it."""
    (run / "stranger.py").write_text(
        f"open({str(run.parent / 'imported')!r}, 'w').close()\nclass Part: ...\n", encoding="utf-8"
    )
    change(run, "model", **{slot: "stranger:Part"})
    monkeypatch.syspath_prepend(run)
    before = everything(run.parent)
    says = (
        rf"config\.json: model\.{slot} = 'stranger:Part' would import and run the module stranger; "
        r"if you trust this code, allow it with trust_code=True \(--trust-code\)"
    )
    with pytest.raises(RunError, match=says):
        LOADERS[loader](run)
    assert everything(run.parent) == before


def test_the_command_searches_the_current_folder_for_what_is_trusted_alone(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder := tmp_path / "here").mkdir()
    mark = tmp_path / "imported"
    (folder / "current_stranger.py").write_text(f"open({str(mark)!r}, 'w').close()\n", encoding="utf-8")
    change(run, "model", score="current_stranger:Part")
    monkeypatch.chdir(folder)
    for words in (
        ["translate", str(run), "a"],
        ["describe", str(run)],
        ["train", "--resume", str(run), "--updates", "3"],
    ):
        assert command(words) == 2
        assert "would import and run the module current_stranger" in capsys.readouterr().err
        assert not mark.exists()
    assert command(["translate", str(run), "a", "--trust-code"]) == 2
    assert "module 'current_stranger' has no attribute 'Part'" in capsys.readouterr().err
    assert mark.exists()


def endless(file: Path, kind: str) -> None:
    """Put a pipe, a device, a file that says that it has more than the disk, or deep JSON in a file's place."""
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "zeros":
        file.symlink_to("/dev/zero")
    elif kind == "holes":
        with file.open("wb") as stream:
            stream.truncate(2**40)
    else:
        file.write_text("[" * 100_000 + "]" * 100_000, encoding="utf-8")


FILES = [
    *("config.json", "source.tokenizer.json", "target.tokenizer.json", "model.safetensors"),
    *(f"checkpoints/00000002/{name}" for name in ("state.json", "model.safetensors", "optimizer.safetensors")),
]


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices have no names in the file system here")
@pytest.mark.parametrize("name", FILES)
def test_files_that_have_no_end_are_refused_at_once(run: Path, name: str) -> None:
    for kind in ("pipe", "zeros", "holes", "brackets"):
        endless(run / name, kind)
        start = time.monotonic()
        with pytest.raises(RunError, match=rf"{name.rpartition('/')[2]} ") as caught:
            LOADERS["resume" if name.startswith("checkpoints") else "load"](run)
        assert time.monotonic() - start < 10, kind
        assert "\n" not in str(caught.value)


LAYERS = {"encoder_layers": 9_000}


@pytest.mark.parametrize(
    ("loader", "changes", "says"),
    [
        ("load", LAYERS, r"config\.json is damaged: model: encoder_layers = 9,000, and model"),
        ("load", {"width": 8192}, r"model\.safetensors is damaged: \S+ must be \(\d+, 8192\), got \(\d+, 8\)"),
        ("load", {"width": 10**30}, r"config\.json is damaged: model: sizes too large for memory"),
        ("resume", LAYERS, "encoder_layers = 9,000"),
        ("init_from", LAYERS, "encoder_layers = 9,000"),
    ],
)
def test_sizes_that_the_weights_do_not_have_are_refused(
    run: Path, loader: str, changes: dict[str, int], says: str
) -> None:
    change(run, "model", **changes)
    start = time.monotonic()
    with pytest.raises(RunError, match=says):
        LOADERS[loader](run)
    assert time.monotonic() - start < 5


@pytest.fixture
def photos(run: Path) -> Path:
    """A folder of the victim's beside the run, with folders named by numbers, and a file only its owner may read."""
    folder = run.parent / "photos"
    for year in ("2019", "2020", "20200101"):
        (folder / year).mkdir(parents=True)
        (folder / year / "beach.jpg").write_bytes(b"sea")
    shutil.copytree(run / "checkpoints" / "00000002", folder / "99990000")
    (folder / "notes.txt").write_text("mine\n", encoding="utf-8")
    (folder / "notes.txt").chmod(0o600)
    return folder


LINKS = {
    "checkpoints": "photos",
    "checkpoints/00000002": "photos/99990000",
    "log.jsonl": "photos/notes.txt",
    "config.json": "photos/99990000/state.json",
    ".config.json.part": "photos/notes.txt",
    "tensorboard": "photos",
}


@pytest.mark.skipif(os.name != "posix", reason="links need permission here")
@pytest.mark.parametrize(
    ("change", "name", "target"),
    [
        *((LOADERS["resume"], name, target) for name, target in LINKS.items()),
        (LOADERS["export"], "export", "photos"),
    ],
)
def test_nothing_is_written_through_a_link(
    run: Path, photos: Path, change: Callable[[Path], None], name: str, target: str
) -> None:
    if (run / name).is_dir():
        shutil.rmtree(run / name)
    if name == "config.json":
        shutil.copy(run / name, run.parent / target)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(run.parent / target)
    before = everything(run.parent)
    with pytest.raises(RunError, match="export is a symbolic link" if name == "export" else "."):
        change(run)
    assert everything(run.parent) == before
    assert (photos / "notes.txt").stat().st_mode & 0o777 == 0o600


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
        with pytest.raises(RunError, match=r"config\.json is damaged: .* must be in the run folder") as caught:
            attent.load(run)
        assert repr(name) in str(caught.value)
        with pytest.raises(RunError, match="must be in the run folder"):
            tokenizers_as_text(run)
        change(run, files=[], task="translate", tokenizers={"source": "char", "target": "char"}, sizes=None)


CLASSES = """
task = "classify"
[labelled]
train = {file}
validation = 0.3
tokenizer = "char"
[model]
layers = 1
width = 8
feed_forward = 5
heads = 2
[training]
updates = 2
batch_pairs = 8
precision = "float32"
threads = 1
"""
ESCAPE = "\x1b]0;owned\x07\x9b31m"


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts whose labels hold escapes, and a run that was trained on them beside."""
    texts = tmp_path_factory.mktemp("labelled") / "texts.tsv"
    texts.write_text(
        "".join(f"text {number}\t{('dog', ESCAPE)[number % 2]}\n" for number in range(20)), encoding="utf-8"
    )
    follow(parse(CLASSES.format(file=json.dumps(str(texts))), "classes.toml"), texts.parent / "run", progress=silence())
    return texts


@pytest.mark.parametrize(
    "words",
    [
        "classify TEXTS --top-k 2",
        "classify TEXTS --top-k 2 --json",
        "evaluate",
        "evaluate --json",
        "show text",
        "describe",
    ],
)
def test_labels_with_escapes_are_made_visible(labelled: Path, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *arguments = words.replace("TEXTS", str(labelled)).split(" ")
    assert command([name, str(labelled.parent / "run"), *arguments]) == 0
    written = capsys.readouterr()
    assert not set(written.out + written.err) & set("\x1b\x07\x9b")
    assert (r"\u001b]0;owned\u0007\u009b31m" in written.out) == (name in ("classify", "evaluate"))


@pytest.mark.parametrize("arguments", [["translate"], ["translate", "--format", "jsonl"], ["show"], ["walk"]])
def test_translations_with_escapes_are_made_visible(
    run: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / "target.tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["characters"] = [
        chr(0x80 + position) if position else "\x1b" for position in range(len(content["characters"]))
    ]
    file.write_text(json.dumps(content), encoding="utf-8")
    # as a forger would, without the digests of the tokenizers
    write_tensors(read_tensors(run / "model.safetensors"), run / "model.safetensors")
    change(run, "digests", **{"model.safetensors": digest(run / "model.safetensors")})
    name, *options = arguments
    command([name, str(run), "en | 3/3/2026", *options])
    written = capsys.readouterr()
    assert written.out
    assert not any(character == "\x1b" or "\x80" <= character <= "\x9f" for character in written.out + written.err)


@pytest.mark.parametrize("loader", ["load", "init_from", "export"])
def test_weights_that_are_not_finite_or_no_floats_are_refused(run: Path, loader: str) -> None:
    weights = read_tensors(run / "model.safetensors")
    name = sorted(weights)[3]
    for spoilt, says in (
        (weights[name].index_fill(0, torch.tensor([0]), torch.nan), "contains values that are not finite"),
        (weights[name].int(), "float32"),
    ):
        write_tensors(weights | {name: spoilt}, run / "model.safetensors")
        change(run, "digests", **{"model.safetensors": digest(run / "model.safetensors")})
        with pytest.raises(RunError, match=rf"model\.safetensors is damaged: {re.escape(name)} .*{says}"):
            LOADERS[loader](run)


@pytest.mark.parametrize(
    "arguments", [["translate", "en | 3/3/2026"], ["show", "en | 3/3/2026"], ["describe"], ["evaluate"]]
)
def test_what_reads_a_run_writes_nothing(run: Path, arguments: list[str]) -> None:
    before = everything(run.parent)
    name, *words = arguments
    command([name, str(run), *words])
    assert everything(run.parent) == before
