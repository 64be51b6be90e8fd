from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from fuzzing import replacements
from fuzzing.live_server import Answer
from fuzzing.replacements import Asking, Replacing

WAYS = [
    "the folder renamed",
    "a link",
    "each file renamed",
    "each file written in place",
    "cp",
    "rsync -a",
    "rsync -a --inplace",
]


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "source.tokenizer.json", "target.tokenizer.json"):
        (folder / name).write_text(f"{text} {name}\n" * 50)
        # what rsync knows a changed file by
        os.utime(folder / name, (len(text), sum(map(ord, text))))
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_ends_with_the_other_run(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacements, "PAUSES", (0.0,) * 6)
    if way.startswith("rsync") and shutil.which("rsync") is None:
        pytest.skip("there is no rsync")
    served, runs = (
        write(tmp_path / "service" / "run", "old"),
        [write(tmp_path / f"training-{number}" / "run", f"new {number}") for number in range(2)],
    )
    replacing = Replacing(served, random.Random(0))
    for seed in range(3):
        replacing.ways[way](runs[seed % 2])
        assert contents(served) == contents(runs[seed % 2])
    # and over a link
    replacing.ways["a link"](runs[0])
    replacing.ways[way](runs[1])
    assert contents(served) == contents(runs[1])
    assert contents(runs[0])["config.json"].startswith("new 0")


def test_a_broken_run_differs_and_the_good_one_stays(tmp_path: Path) -> None:
    runs = [write(tmp_path / f"training-{number}" / "run", f"new {number}") for number in range(2)]
    before, kinds = contents(runs[0]), set()
    for seed in range(40):
        replacing = Replacing(tmp_path / "service" / "run", random.Random(seed))
        replacing._count = 10 * seed
        replacing.served.parent.mkdir(exist_ok=True)
        broken, kind = replacing.spoil(runs[0])
        differing = {
            path.name
            for path in runs[0].iterdir()
            if not (broken / path.name).exists() or path.read_bytes() != (broken / path.name).read_bytes()
        }
        assert differing == {kind.split(" ")[0]}
        kinds.add(kind.split(" ", 1)[1])
    assert len(kinds) == 5
    assert contents(runs[0]) == before


def answer(*texts: str, status: int = 200) -> Answer:
    return Answer(status, False, json.dumps({"translatedText": texts}).encode())


@pytest.mark.parametrize(
    ("candidate", "allowed", "expected"),
    [
        (answer("a", "b"), {0}, ""),
        (answer("c", "d"), {0, 1}, ""),
        (answer("c", "d"), {0}, "an answer of run 1, but [0] are"),
        (answer("a", "d"), {0, 1}, "an answer of no whole run"),
        (answer("a", "b", status=500), {0}, "an answer of no whole run: 500"),
    ],
)
def test_an_answer_must_be_of_one_whole_run(candidate: Answer, allowed: set[int], expected: str) -> None:
    asking = Asking(None, [["a", "b"], ["c", "d"]])
    asking.allowed = allowed
    asking.judge(candidate, allowed)
    assert bool(asking.faults) == bool(expected)
    assert expected in "".join(asking.faults)
