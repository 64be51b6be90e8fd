"""Corpora that are generated, split and put into batches: the same bytes and the same order."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import make_stories
import numpy as np
import pytest


def digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


@pytest.mark.parametrize("locales", [("en", "fr", "ja", "ar_EG"), pytest.param("demo", marks=pytest.mark.slow)])
def test_dates(golden, internals, cldr: str, locales: str | tuple[str, ...]) -> None:
    for seed in (0, 3):
        settings = {
            "locales": locales,
            "training_pairs": 500,
            "validation_pairs": 50,
            "held_out_pairs": 40,
            "seed": seed,
        }
        corpus = internals.dates(held_out_dates=100, held_out_combinations=3, **settings)
        sets = {"train": corpus.train, "validation": corpus.validation, **corpus.held_out}
        for name, pairs in sets.items():
            lines = [f"{pair.source}\t{pair.target}\t{' '.join(f'{i}-{j}' for i, j in pair.links)}" for pair in pairs]
            golden.check(f"{cldr}: {locales}, {seed}, {name}", [len(lines), lines[0], digest(lines)])


def test_the_order_of_batches(golden, internals, frozen_folder: Path) -> None:
    pairs = [tuple(line.split("\t")) for line in (frozen_folder / "pairs.tsv").read_text(encoding="utf-8").splitlines()]
    for size in ({"pairs": 16}, {"tokens": 700}):
        for seed in (0, 5):
            orders = internals.orders(pairs, seed, 3, size)
            rows = [digest(" ".join(map(str, batch)) for batch in epoch) for epoch in orders]
            golden.check(f"batches of {size}, {seed}", [[len(epoch) for epoch in orders], orders[0][0], rows])


PAIRS = (
    "\ufeffone dog\tun chien",
    "two cats\tdeux chats\r",
    "",
    "no tab",
    "one\ttab\ttoo many",
    "\tnothing before",
    "nothing after\t ",
    "a smile 😀\tun sourire 😀",
    "one dog\tun chien",
    "café\tcafe\u0301",
    *(f"number {number}\tnombre {number}" for number in range(40)),
)
LINES = (
    "\ufefffirst",
    "  spaces around  ",
    "",
    "\t",
    "with a tab\tin it",
    "one\r",
    "😀",
    *(f"line {number % 30}" for number in range(50)),
)
LABELLED = (
    "a text\tone",
    "other text\t two ",
    "a text\tone",
    "both\tone",
    "both\ttwo",
    "no label\t",
    "no tab",
    *(f"text {number}\t{('one', 'two', 'three')[number % 3]}" for number in range(60)),
)
OBJECTS = (
    {"source": "a", "target": "b"},
    {"source": 1, "target": "b"},
    ["a", "b"],
    {"target": "d\n", "source": "c", "more": 1},
)


@pytest.fixture
def files(tmp_path: Path, monkeypatch) -> None:
    """Files of every kind that a corpus is read from, in the folder in which the test then works."""
    monkeypatch.chdir(tmp_path)
    texts = {
        "pairs.tsv": PAIRS,
        "lines.txt": LINES,
        "labelled.tsv": LABELLED,
        "own.tsv": PAIRS[-7:],
        "own.txt": LINES[-7:],
    }
    texts |= {
        "labels.tsv": LABELLED[-9:],
        "test.tsv": LABELLED[-12:-6],
        "replay.tsv": [f"again {n}\tencore {n}" for n in range(5)],
    }
    texts |= {"pairs.en": [f"source {n % 60}" for n in range(80)], "pairs.fr": [f"target {n % 50}" for n in range(80)]}
    texts |= {
        "pairs.jsonl": [
            "{",
            *map(json.dumps, OBJECTS),
            *(json.dumps({"source": f"s{n}", "target": f"t{n}"}) for n in range(30)),
        ]
    }
    for name, lines in texts.items():
        content = "".join(f"{line}\n" for line in lines).encode()
        Path(name).write_bytes(content)
        Path(f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))


# A table that all settings need.
TRAINING = "[training]\nupdates = 1\nbatch_pairs = 8\n"
MASKED, GENERATION = 'task = "fill-mask"\n[lines]\n', 'task = "text-generation"\n[lines]\n'
TEXTS = {
    "pairs": '[text]\ntrain = "pairs.tsv"\n',
    "pairs, another seed": '[text]\ntrain = "pairs.tsv.gz"\nseed = 3\n',
    "pairs, objects": '[text]\ntrain = "pairs.jsonl"\n',
    "pairs, parallel": '[text]\ntrain_source = "pairs.en"\ntrain_target = "pairs.fr.gz"\n',
    "pairs, own validation": '[text]\ntrain = "pairs.tsv"\nvalid = "own.tsv"\n',
    "pairs, replay": '[text]\ntrain = "pairs.tsv"\nreplay = "replay.tsv"\nreplay_share = 0.5\n',
    "lines": f'{MASKED}train = "lines.txt"\n',
    "lines, another seed": f'{GENERATION}train = "lines.txt.gz"\nseed = 3\n',
    "lines, own validation": f'{GENERATION}train = "lines.txt"\nvalid = "own.txt"\n',
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_from_files(golden, internals, files: None, name: str) -> None:
    for part, lines in internals.text_corpus(TEXTS[name] + TRAINING).items():
        golden.check(f"files: {name}, {part}", [len(lines), *lines[:3], digest(lines)])


CLASSES = 'task = "classify"\n'
EXAMPLES = {
    "labelled": f'{CLASSES}[labelled]\ntrain = "labelled.tsv"\nvalidation = 0.2\n',
    "labelled, another seed": f'{CLASSES}[labelled]\ntrain = "labelled.tsv.gz"\nvalidation = 0.2\nseed = 3\n',
    "labelled, own files": f'{CLASSES}[labelled]\ntrain = "labelled.tsv"\nvalid = "labels.tsv"\ntest = "test.tsv"\n',
    "vectors": f'{CLASSES}[images]\nsource = "{{here}}/vectors.npz"\ntest = 0.2\n',
    "pictures": f'{CLASSES}[images]\nsource = "{{here}}/pictures.npz"\ntest = 0.2\nseed = 3\n',
    "digits": f'{CLASSES}[images]\nsource = "digits"\ntest = 0.2\n',
    "folder": f'{CLASSES}[images]\nsource = "folder"\nvalidation = 0.25\ntest = 0.25\n',
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_labelled_examples(golden, internals, files: None, name: str) -> None:
    if name == "digits":
        pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    if name == "folder":
        picture_folder()
    settings = EXAMPLES[name].format(here=Path(__file__).parent.as_posix()) + TRAINING
    for part, rows in internals.labelled_corpus(settings).items():
        labels = [label for label, _ in rows]
        lines = [
            f"{label}\t{example if isinstance(example, str) else example.tobytes().hex()}" for label, example in rows
        ]
        golden.check(f"examples: {name}, {part}", [len(rows), labels[:12], digest(lines)])


def picture_folder() -> None:
    """Pictures of two classes, in a format without loss."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for number in range(16):
        path = Path("folder", ("even", "odd")[number % 2], f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(np.arange(number, number + 64, dtype=np.uint8).reshape(8, 8)).save(path)


SMALL = 'tokenizer = "char"\n'
BATCHES = {
    "pairs": f"{TEXTS['pairs']}{SMALL}",
    "masked lines": f"{TEXTS['lines']}{SMALL}blanks = 0.3\n",
    "lines": f'{GENERATION}{SMALL}train = "lines.txt"\n',
    "running text": f'{GENERATION}{SMALL}train = "lines.txt"\npacking = "text"\nmaximum_length = 16\n',
    "labelled": f"{EXAMPLES['labelled']}{SMALL}",
    "vectors": EXAMPLES["vectors"],
    "pictures": f"{EXAMPLES['pictures']}patch = 4\nshift = 2\nturn = 10\nscale = 0.1\nflip = true\n",
}


@pytest.mark.parametrize("name", BATCHES)
def test_what_a_model_reads(golden, internals, files: None, name: str) -> None:
    settings = BATCHES[name].format(here=Path(__file__).parent.as_posix()) + TRAINING
    for number, fields in enumerate(internals.batches(settings, 8, 5, 2)):
        golden.check(f"batch: {name}, {number}", [summary(field) for field in fields], absolute=1e-4)


def summary(value: Any) -> Any:
    """Whole numbers by their digest, others, which are computed, by means."""
    if not hasattr(value, "dtype"):
        return value
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return [*array.shape, digest(map(str, array.ravel().tolist()))]
    return [*array.shape, float(array.mean()), float(np.abs(array).mean()), array.ravel()[:4].tolist()]


def test_stories(golden, tmp_path: Path) -> None:
    for name, options in {"all": ["--seed", "2"], "some": ["--kinds", "two,list", "--with-support"]}.items():
        make_stories.main(["--out", str(tmp_path / name), "--stories", "200", "--held-out", "30", *options])
        for file in sorted((tmp_path / name).iterdir()):
            lines = file.read_text(encoding="utf-8").splitlines()
            golden.check(f"stories: {name}, {file.name}", [len(lines), lines[0], digest(lines)])


@pytest.mark.parametrize("name", ["pairs", "blanks", "lines", "texts"])
def test_old_tokenizers_cut_as_they_did(golden, frozen_folder: Path, name: str) -> None:
    import attent

    run = attent.load(f"runs/{name}")
    tokenizer = run.source_tokenizer if name == "pairs" else run.tokenizer
    for text in ("the small dog sees a cat", "A Dog  sées x", "", "le chat noir"):
        ids = [int(token) for token in tokenizer.encode(text)]
        golden.check(f"{name}: {text!r}", [tokenizer.size, ids, tokenizer.pieces(text), tokenizer.decode(ids)])
