"""Corpora that are generated, split and put into batches: the same bytes and the same order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import pytest


def digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


@pytest.fixture
def cldr(golden) -> str:
    """What dates are made of: Babel's version, by which what is frozen of them is named."""
    babel = pytest.importorskip("babel")
    version = f"Babel {babel.__version__}"
    if not golden.writing and not any(name.startswith(version) for name in golden.values):
        pytest.skip(f"nothing is frozen of {version}, whose dates may be others")
    return version


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


def test_dates_with_their_languages(attent, golden, cldr: str, tmp_path: Path) -> None:
    attent(
        "data",
        "date-languages",
        "--out",
        tmp_path,
        "--locales",
        "en,fr,de",
        "--texts",
        300,
        "--held-out",
        40,
        "--seed",
        2,
    )
    for file in sorted(tmp_path.iterdir()):
        golden.check(f"{cldr}: languages, {file.name}", digest(file.read_text(encoding="utf-8").splitlines()))


def test_the_order_of_batches(golden, internals, here: Path) -> None:
    pairs = [tuple(line.split("\t")) for line in (here / "pairs.tsv").read_text(encoding="utf-8").splitlines()]
    for size in ({"pairs": 16}, {"tokens": 700}):
        for seed in (0, 5):
            orders = internals.orders(pairs, seed, 3, size)
            rows = [digest(" ".join(map(str, batch)) for batch in epoch) for epoch in orders]
            golden.check(f"batches of {size}, {seed}", [[len(epoch) for epoch in orders], orders[0][0], rows])


@pytest.mark.parametrize("name", ["pairs", "blanks", "texts"])
def test_old_tokenizers_cut_as_they_did(golden, here: Path, name: str) -> None:
    import attent

    run = attent.load(f"runs/{name}")
    tokenizer = run.source_tokenizer if name == "pairs" else run.tokenizer
    for text in ("the small dog sees a cat", "A Dog  sées x", "", "le chat noir"):
        ids = [int(token) for token in tokenizer.encode(text)]
        golden.check(f"{name}: {text!r}", [tokenizer.size, ids, tokenizer.pieces(text), tokenizer.decode(ids)])
