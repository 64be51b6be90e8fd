"""The fixtures of cases: tiny files of every kind, and a run of each task trained on them."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

from attent.cli.app import run
from fuzzing.fork import Child, Limits

WORDS = ("one", "two", "three", "four", "five", "six", "seven")
LINES = [" ".join(WORDS[(row * step + row) % len(WORDS)] for step in range(2 + row % 4)) for row in range(40)]
TRAINING = (
    'updates = 4\nbatch_pairs = 8\nprecision = "float32"\nthreads = 1\nvalidate_every = 2\nkeep_last = 2\nwarmup = 1\n'
)
TRANSFORMER = "encoder_layers = 1\ndecoder_layers = 1\nwidth = 8\nfeed_forward = 8\nheads = 2\n"
RECURRENT = 'kind = "rnn"\nembedding_width = 5\nwidth = 6\n'
ENCODER = "layers = 1\nwidth = 8\nfeed_forward = 8\nheads = 2\n"
PROSE = 'train = "lines.txt"\ntokenizer = "word"\npacking = "text"\nmaximum_length = 16\n'
DATES = """locales = ["en", "de"]
training_pairs = 53
validation_pairs = 5
held_out_dates = 31
held_out_pairs = 7
held_out_combinations = 2
"""
RECIPES = {
    "transformer": f'[text]\ntrain = "pairs.tsv"\ntokenizer = "word"\n[model]\n{TRANSFORMER}',
    "rnn": f'[text]\ntrain = "pairs.tsv"\ntokenizer = "bpe"\nvocabulary = 320\n[model]\n{RECURRENT}',
    "dates": f"[dates]\n{DATES}[model]\n{TRANSFORMER}",
    "blanks": f'task = "fill-mask"\n[lines]\ntrain = "lines.txt"\n[model]\n{ENCODER}',
    "prose": f'task = "text-generation"\n[lines]\n{PROSE}[model]\n{ENCODER}',
    "texts": f'task = "classify"\n[labelled]\ntrain = "labelled.tsv"\n[model]\n{ENCODER}',
    "arrays": f'task = "classify"\n[images]\nsource = "arrays.npz"\n[model]\n{ENCODER}',
    "pictures": f'task = "classify"\n[images]\nsource = "images"\nsize = 8\npatch = 4\n[model]\n{ENCODER}',
}
# Uncompressed bytes of a compressed file: more memory than a process may use.
BOMB = 512 * 2**20


def write(folder: Path) -> None:
    """Write the files, and train the runs beside them, each in a separate process."""
    write_texts(folder)
    _arrays(folder / "arrays.npz")
    _images(folder / "images")
    _bombs(folder)
    for name, recipe in RECIPES.items():
        (folder / f"{name}.toml").write_text(f"{recipe}[training]\n{TRAINING}")
    training = {
        name: Child(_training(name), folder / "runs" / name, Limits(120, 4096)) for name in _folders(folder / "runs")
    }
    for name, child in training.items():
        if (outcome := child.wait()).code != 0:
            raise RuntimeError(f"the run {name} could not be trained: {outcome.err}")
        _without_times(folder / "runs" / name / name)


def _folders(runs: Path) -> list[str]:
    names = [name for name in RECIPES if name != "pictures" or (runs.parent / "images").is_dir()]
    for name in names:
        (runs / name).mkdir(parents=True)
        for file in (path for path in runs.parent.iterdir() if path != runs):
            (runs / name / file.name).symlink_to(file)
    return names


def _training(name: str) -> Callable[[], int]:
    return lambda: run(["train", "--config", f"{name}.toml", "--out", name])


def _without_times(run_folder: Path) -> None:
    """Replace every time and speed by the same number, so that a seed always corrupts the same bytes."""
    for file in run_folder.rglob("*.json*"):
        lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
        values = [json.loads(line) for line in lines]
        # other files, such as tokenizers, are kept byte for byte: the weights contain their digests
        if (timeless := _timeless(values)) != values:
            file.write_text(
                "\n".join(json.dumps(value, indent=None if len(lines) > 1 else 2) for value in timeless) + "\n"
            )


def _timeless(value: Any) -> Any:
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    if isinstance(value, dict):
        return {
            key: 1.5 if isinstance(item, float) and "second" in key else _timeless(item) for key, item in value.items()
        }
    return value


def write_texts(folder: Path) -> None:
    """Write corpora, input lines, and word vectors."""
    pairs = [(line, " ".join(reversed(line.split()))) for line in LINES]
    (folder / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    (folder / "pairs.jsonl").write_text(
        "".join(json.dumps({"source": source, "target": target}) + "\n" for source, target in pairs)
    )
    (folder / "pairs.tsv.gz").write_bytes(gzip.compress((folder / "pairs.tsv").read_bytes(), mtime=0))
    (folder / "sources.txt").write_text("".join(f"{source}\n" for source, _ in pairs))
    (folder / "targets.txt").write_text("".join(f"{target}\n" for _, target in pairs))
    (folder / "lines.txt").write_text("".join(f"{line} .\n" for line in LINES))
    (folder / "blanks.txt").write_text("".join(f"[MASK] {line} .\n" for line in LINES[:5]))
    (folder / "gold.txt").write_text("0-0 1?1\n" * len(LINES))
    (folder / "labelled.tsv").write_text(
        "".join(f"{line}\t{'even' if len(line.split()) % 2 == 0 else 'odd'}\n" for line in LINES)
    )
    numbers = [[(row * 7 + column) % 10 / 10 for column in range(8)] for row in range(len(WORDS))]
    rows = [f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, numbers, strict=True)]
    (folder / "words.txt").write_text("".join(rows))
    (folder / "words.vec.gz").write_bytes(gzip.compress(f"{len(WORDS)} 8\n{''.join(rows)}".encode(), mtime=0))
    binary = b"".join(
        word.encode() + b" " + numpy.array(row, "<f4").tobytes() + b"\n"
        for word, row in zip(WORDS, numbers, strict=True)
    )
    (folder / "words.bin").write_bytes(f"{len(WORDS)} 8\n".encode() + binary)


def _arrays(file: Path) -> None:
    values = numpy.arange(40 * 3 * 5, dtype="float32").reshape(40, 3, 5) % 7
    numpy.savez_compressed(file, x=values, y=numpy.array([f"class {row % 2}" for row in range(40)]))


def _images(folder: Path) -> None:
    try:
        from PIL import Image
    except ImportError:
        return
    for row in range(12):
        name = folder / ("dark" if row % 2 else "light") / f"{row}.png"
        name.parent.mkdir(parents=True, exist_ok=True)
        pixels = numpy.full((8, 8), 30 + row if row % 2 else 200 + row, "uint8")
        Image.fromarray(pixels).save(name)


def _bombs(folder: Path) -> None:
    part = gzip.compress(bytes(16 * 2**20), mtime=0)
    (folder / "bomb.gz").write_bytes(part * (BOMB // (16 * 2**20)))
    header, rows = io.BytesIO(), BOMB // 4 // 15
    numpy.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (rows, 3, 5)})
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("y.npy", "w") as member:
            numpy.lib.format.write_array(member, numpy.zeros(rows, "u1"))
        with archive.open("x.npy", "w", force_zip64=True) as member:
            member.write(header.getvalue())
            for _ in range(BOMB // 2**24):
                member.write(bytes(2**24))
