"""Other projects beside ours: each in an environment of its own, which scripts/peers makes, on the same pieces in the same batches."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attent.data.batches import BatchSize, Bitext
from attent.data.tokenizer import SPECIALS
from attent.decoding.hypothesis import Translation
from attent.experiments.bench_training import ModelSettings

HERE = Path(__file__).parent
# Where scripts/peers puts them, unless PEERS says otherwise.
FOLDER = Path(os.environ.get("PEERS", HERE.parent / ".peers"))
# What is run, and in whose environment; by the kind of our model.
TRAINED: dict[str, dict[str, tuple[str, str]]] = {
    "transformer": {"Marian": ("transformers", "marian.py"), "eole": ("eole", "eole_train.py"), "JoeyNMT": ("joeynmt", "joeynmt_train.py")},
    "rnn": {"JoeyNMT": ("joeynmt", "joeynmt_train.py")},
}
GENERATED = {"Marian, generate": ("transformers", "marian_generate.py")}


class Peers:
    """Those peers whose environments have been made.

    Args:
        of: the environment and the script of each, by name.

    Attributes:
        notes: why others are left out.
        failed: those that have failed, which are not asked again.
    """

    def __init__(self, of: Mapping[str, tuple[str, str]]) -> None:
        self.there = {name: place for name, place in of.items() if python(place[0]).exists()}
        self.notes = [f"{name} is left out: scripts/peers {of[name][0]} makes its environment." for name in of if name not in self.there]
        self.failed: set[str] = set()
        self.versions: dict[str, str] = {}

    def said(self, name: str, *arguments: object) -> dict[str, Any] | None:
        """What a peer's script says in its last line; None if it fails, which is noted."""
        if name in self.failed:
            return None
        environment, script = self.there[name]
        command = [str(python(environment)), str(HERE / "peers" / script), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": ""})
        lines = done.stdout.splitlines()
        if done.returncode or not lines:
            self.failed.add(name)
            self.notes.append(f"{name} failed: {(done.stderr.splitlines() or ['it said nothing'])[-1]}")
            return None
        found = json.loads(lines[-1])
        self.versions[name] = f"{name}: {found['package']} {found['version']} with torch {found['torch']}."
        return found


def python(environment: str) -> Path:
    """The interpreter of a peer's environment."""
    return FOLDER / environment / "bin" / "python"


def write(folder: Path, data: Bitext, model: ModelSettings, pieces: int, tokens: int, batches: int) -> None:
    """Write what is to be trained on: the pairs of so many of attent's batches, in their order; the vocabulary; the model."""
    order = data.stream(BatchSize(tokens=tokens), 1)
    rows = [order.next_rows() for _ in range(batches)]
    (folder / "batches.json").write_text(json.dumps([len(some) for some in rows]), encoding="utf-8")
    every = list(itertools.chain.from_iterable(rows))
    # targets are kept with BOS and EOS
    for name, of, ends in (("source", data.source, slice(None)), ("target", data.target, slice(1, -1))):
        sentences = (of.tokens[of.starts[row] : of.starts[row] + of.lengths[row]][ends].tolist() for row in every)
        _lines(folder / f"{name}.txt", sentences)
    _model(folder, model, pieces)


def write_lines(
    folder: Path,
    lines: Sequence[Sequence[int]],
    searches: Mapping[str, tuple[int, Sequence[Translation], Sequence[int]]],
    model: ModelSettings,
    pieces: int,
) -> None:
    """Write what is to be translated, from the shortest line to the longest.

    Args:
        folder: where to.
        lines: the pieces of each line.
        searches: by name: the beam, our own translation of each line, the numbers of lines side by side to try.
        model: ours.
        pieces: tokens in the vocabulary.
    """
    order = sorted(range(len(lines)), key=lambda row: len(lines[row]))
    _lines(folder / "lines.txt", (lines[row] for row in order))
    # EOS is a step too
    values = {
        name: {"beam": beam, "batches": list(batches), "steps": [len(ours[row].tokens) + 1 for row in order]}
        for name, (beam, ours, batches) in searches.items()
    }
    (folder / "searches.json").write_text(json.dumps(values), encoding="utf-8")
    _model(folder, model, pieces)


def _lines(file: Path, lines: Iterable[Sequence[int]]) -> None:
    file.write_text("".join(" ".join(map(named, line)) + "\n" for line in lines), encoding="utf-8")


def _model(folder: Path, model: ModelSettings, pieces: int) -> None:
    words = ["<pad>", "<unk>", "<s>", "</s>", *map(named, range(SPECIALS, pieces))]
    (folder / "vocabulary.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    (folder / "model.json").write_text(json.dumps(model.model_dump(mode="json")), encoding="utf-8")


def named(token: int) -> str:
    """The name of a piece: a letter and its id, for the toolkits are given pieces, and are not to cut text."""
    return f"p{token}"
