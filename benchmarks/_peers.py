"""Peers: other projects, each in its own environment (see scripts/peers), with attent's pieces in the same batches."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from _training import ModelSettings

from attent.search.search import Translation
from attent.text.batches import BatchSize, Bitext
from attent.text.tokenizer import SPECIALS

HERE = Path(__file__).parent
# The folder where scripts/peers puts them, unless the variable PEERS names another.
FOLDER = Path(os.environ.get("PEERS", HERE.parent / ".peers"))
# The environment and the script of each peer, by the kind of attent's model.
TRAINED: dict[str, dict[str, tuple[str, str]]] = {
    "transformer": {
        "Marian": ("transformers", "marian.py"),
        "eole": ("eole", "eole_train.py"),
        "JoeyNMT": ("joeynmt", "joeynmt_train.py"),
    },
    "rnn": {"JoeyNMT": ("joeynmt", "joeynmt_train.py")},
}
GENERATED = {"Marian, generate": ("transformers", "marian_generate.py")}


class Peers:
    """Peers whose environments exist.

    Args:
        scripts: the environment and script of each peer, by name.

    Attributes:
        available: those of `scripts` whose environment exists.
        notes: the reasons why peers are left out.
        failed: the peers that failed once and are not run again.
        versions: a sentence with the versions of each peer that ran.
    """

    def __init__(self, scripts: Mapping[str, tuple[str, str]]) -> None:
        self.available = {name: script for name, script in scripts.items() if python(script[0]).exists()}
        self.notes = [
            f"{name} is left out: scripts/peers {environment} makes its environment."
            for name, (environment, _) in scripts.items()
            if name not in self.available
        ]
        self.failed: set[str] = set()
        self.versions: dict[str, str] = {}

    def run(self, name: str, *arguments: object) -> dict[str, Any] | None:
        """Return the JSON in the last line that a peer's script prints; if it fails, add a note and return None."""
        if name in self.failed:
            return None
        environment, script = self.available[name]
        command = [str(python(environment)), str(HERE / "peers" / script), *map(str, arguments)]
        process = subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": ""}
        )
        lines = process.stdout.splitlines()
        if process.returncode or not lines:
            self.failed.add(name)
            self.notes.append(f"{name} failed: {(process.stderr.splitlines() or ['it printed nothing'])[-1]}")
            return None
        result = json.loads(lines[-1])
        self.versions[name] = f"{name}: {result['package']} {result['version']} with torch {result['torch']}."
        return result


def python(environment: str) -> Path:
    """Return the interpreter of a peer's environment."""
    return FOLDER / environment / "bin" / "python"


def write(folder: Path, data: Bitext, model: ModelSettings, pieces: int, tokens: int, batches: int) -> None:
    """Write the training data: the pairs of attent's first batches in order, the vocabulary, and the model's settings.

    They are read by the peers' scripts.
    """
    order = data.stream(BatchSize(tokens=tokens), 1)
    rows = [order.next_rows() for _ in range(batches)]
    (folder / "batches.json").write_text(json.dumps([len(batch) for batch in rows]), encoding="utf-8")
    sentence_rows = list(itertools.chain.from_iterable(rows))
    # targets are kept with BOS and EOS
    for name, of, ends in (("source", data.source, slice(None)), ("target", data.target, slice(1, -1))):
        sentences = (
            of.tokens[of.starts[row] : of.starts[row] + of.lengths[row]][ends].tolist() for row in sentence_rows
        )
        _lines(folder / f"{name}.txt", sentences)
    _model(folder, model, pieces)


def write_lines(
    folder: Path,
    lines: Sequence[Sequence[int]],
    searches: Mapping[str, tuple[int, Sequence[Translation], Sequence[int]]],
    model: ModelSettings,
    pieces: int,
) -> None:
    """Write the lines to translate, from shortest to longest.

    Args:
        folder: the folder to write to.
        lines: the pieces of each line.
        searches: for each search by name, the beam size, attent's translation of each line, and the batch sizes in
            lines.
        model: settings of attent's model.
        pieces: the vocabulary size.
    """
    order = sorted(range(len(lines)), key=lambda row: len(lines[row]))
    _lines(folder / "lines.txt", (lines[row] for row in order))
    # EOS takes a step too
    values = {
        name: {"beam": beam, "batches": list(batches), "steps": [len(translations[row].tokens) + 1 for row in order]}
        for name, (beam, translations, batches) in searches.items()
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
    """Return a piece's name, a letter and its id, so that toolkits read whole pieces and need not tokenize."""
    return f"p{token}"
