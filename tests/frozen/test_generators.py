"""A language model that was trained before: how it continues texts, and how probable it says they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import attent as package

PROMPTS = ("the small dog", "a hen", "the cow sees a green mouse and", "the zebra", "")
RUN = "runs/lines"


@pytest.fixture
def prompts(frozen_folder: Path, tmp_path: Path) -> Path:
    file = tmp_path / "prompts.txt"
    file.write_text("".join(f"{prompt}\n" for prompt in PROMPTS), encoding="utf-8")
    return file


@pytest.mark.parametrize("way", ["as it is", "without the extension"])
def test_what_is_written(attent, golden, internals, monkeypatch, prompts: Path, way: str) -> None:
    if way == "without the extension":
        internals.without_extension(monkeypatch)
    for name, options in {
        "greedy": [],
        "short": ["--max-new-tokens", 3],
        "temperature": ["--temperature", 0.8, "--seed", 3],
        "top-k": ["--top-k", 3, "--seed", 5, "--copies", 2],
        "top-p": ["--top-p", 0.7, "--copies", 3],
    }.items():
        if way == "without the extension" and name not in ("greedy", "top-k"):
            continue
        done = attent("generate", RUN, prompts, *options, codes=(2,))
        golden.check(f"generate: {name}", done.out)
        # one line on the unknown word
        assert len(done.err) == 1
        assert "zebra" in done.err[0]
        records = [json.loads(line) for line in attent("generate", RUN, prompts, "--json", *options, codes=(2,)).out]
        golden.check(f"generate: {name}, json", records, relative=1e-3)


def test_one_text(attent, golden, frozen_folder: Path) -> None:
    golden.check("generate: a text", attent("generate", RUN, PROMPTS[0]).out)
    golden.check("generate: a new text", attent("generate", RUN, "--seed", 4).out)


def test_how_probable_it_is(attent, golden, frozen_folder: Path, tmp_path: Path) -> None:
    lines = (frozen_folder / "lines.txt").read_text(encoding="utf-8").splitlines()[:6]
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    scores = attent("score", RUN, tmp_path / "lines.txt").out
    golden.check("score", [[float(number) for number in line.split("\t")] for line in scores], relative=1e-3)
    golden.check("evaluate", json.loads("\n".join(attent("evaluate", RUN, "--json").out)), relative=1e-3)
    report = json.loads("\n".join(attent("evaluate", RUN, "--text", tmp_path / "lines.txt", "--json").out))
    golden.check("evaluate on a file", report, relative=1e-3)


def test_from_python(golden, frozen_folder: Path) -> None:
    run = package.load(RUN)
    golden.check("from Python", [run.generate(PROMPTS[0]).text, [text.text for text in run.generate([*PROMPTS[:3]])]])
    for module, attention_map in run.map(PROMPTS[0]).items():
        weights = attention_map.weights
        values = {"shape": [*weights.shape], "entropy": weights.entropy(), "last": weights[0, :, -1]}
        golden.check(f"map of {module}", values, absolute=2e-4)
