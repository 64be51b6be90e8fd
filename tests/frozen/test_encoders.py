"""Encoders that were trained before: the blanks that they guess, and the classes that they tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import attent as package

BLANKS = (
    "the small [MASK] sees a cat and the dog barks .",
    "a hen likes the [MASK] mouse and the [MASK] moos .",
    "the cat finds [MASK] cat",
)
TEXTS = ("the cow sees a hen", "a sad horse likes the cat", "the mouse finds the black dog")
CLASSIFIERS = {"texts": "texts.txt", "vectors": "vectors.npz", "pictures": "pictures.npz"}


@pytest.mark.parametrize("way", ["as it is", "without the extension"])
def test_blanks(attent, golden, internals, monkeypatch, frozen_folder: Path, tmp_path: Path, way: str) -> None:
    if way == "without the extension":
        internals.without_extension(monkeypatch)
    (tmp_path / "blanks.txt").write_text("".join(f"{line}\n" for line in BLANKS), encoding="utf-8")
    for name, options in {"mean": ["--top-k", 3], "head": ["--top-k", 2, "--layer", 1, "--head", 0]}.items():
        lines = attent("fill", "runs/blanks", tmp_path / "blanks.txt", "--json", *options).out
        golden.check(f"blanks: {name}", [json.loads(line) for line in lines], relative=1e-3)


def test_blanks_are_judged(attent, golden, frozen_folder: Path, tmp_path: Path) -> None:
    lines = (frozen_folder / "lines.txt").read_text(encoding="utf-8").splitlines()[:30]
    (tmp_path / "text.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    report = json.loads("\n".join(attent("evaluate", "runs/blanks", "--text", tmp_path / "text.txt", "--json").out))
    golden.check("blanks: evaluate", report, relative=1e-3)


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("way", ["as it is", "without the extension"])
def test_classes(
    attent, golden, internals, monkeypatch, frozen_folder: Path, tmp_path: Path, name: str, way: str
) -> None:
    if way == "without the extension":
        internals.without_extension(monkeypatch)
    (tmp_path / "texts.txt").write_text("".join(f"{line}\n" for line in TEXTS), encoding="utf-8")
    source = tmp_path / "texts.txt" if name == "texts" else frozen_folder / CLASSIFIERS[name]
    lines = attent("classify", f"runs/{name}", source, "--top-k", 3, "--json").out[:12]
    golden.check(f"{name}: classify", [json.loads(line) for line in lines], relative=1e-3)
    golden.check(
        f"{name}: evaluate", json.loads("\n".join(attent("evaluate", f"runs/{name}", "--json").out)), relative=1e-3
    )


def test_where_a_classifier_looks(golden, frozen_folder: Path) -> None:
    for module, weights in package.load("runs/texts").maps([TEXTS[0]]).items():
        values = {"shape": [*weights.shape], "entropy": weights.entropy(), "front": weights[0, :, 0]}
        golden.check(f"texts: map of {module}", values, absolute=2e-4)


@pytest.mark.parametrize(("name", "side"), [("pairs", "source"), ("bahdanau", "target"), ("blanks", "text")])
def test_word_vectors(attent, golden, frozen_folder: Path, tmp_path: Path, name: str, side: str) -> None:
    attent("vectors", f"runs/{name}", "--out", tmp_path / "words.vec", *([] if side == "text" else ["--side", side]))
    lines = [line.split(" ") for line in (tmp_path / "words.vec").read_text(encoding="utf-8").splitlines()]
    golden.check(f"{name}: vectors", [[line[0], len(line), float(line[-1])] for line in lines])
