"""Captions joined, so that sentences of sixty words and more can be trained on and tested."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from attent.data.readers import ReadReport, read_parallel
from attent.data.text import Pair
from attent.errors import ArgumentError
from attent.runs.durable import new_file

# Of Multi30k, English to German, lower-cased and cut into words.
PARTS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
MOST = 5
# How often training's captions are joined anew.
PASSES = 3


def joined(folder: Path, to: Path) -> tuple[dict[str, str], list[Pair]]:
    """Write pairs to train on and to validate on, and return them with those to test on: 1 to 5 captions joined in each.

    Training takes all captions in a random order, a random number at a time, and that some times over; of validation and test each
    number from 1 to 5 has as many pairs, each caption of the test in one of them alone. The same each time.

    Args:
        folder: that of Multi30k.
        to: where to write train.tsv and valid.tsv.

    Returns:
        Their paths, as the settings of a text name them, and the test's pairs.

    Raises:
        ArgumentError: it is no folder of Multi30k, or other captions have been joined there.
    """
    names = {part: [f"tok/{name}.lc.norm.tok.{language}.gz" for language in ("en", "de")] for part, name in PARTS.items()}
    missing = [name for pair in names.values() for name in pair if not (folder / name).is_file()]
    if missing:
        raise ArgumentError(f"{folder} is no folder of Multi30k, it has no {missing[0]}: attent data multi30k --to {folder}")
    read = {part: _captions(*(folder / name for name in pair)) for part, pair in names.items()}
    written = {"train": _training(read["train"]), "valid": _each_number(read["valid"])}
    to.mkdir(parents=True, exist_ok=True)
    for part, pairs in written.items():
        path, text = to / f"{part}.tsv", "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
        if not path.is_file():
            with new_file(path) as file:
                file.write_text(text, encoding="utf-8")
        elif path.read_bytes() != text.encode():
            raise ArgumentError(f"{path} holds other captions than those of {folder}: name another folder with --out")
    return {part: str((to / f"{part}.tsv").resolve()) for part in written}, _each_number(read["test"])


def _captions(source: Path, target: Path) -> list[Pair]:
    return [pair for _, pair in read_parallel(source, target, ReadReport(str(source)))]


def _training(captions: Sequence[Pair]) -> list[Pair]:
    dice, found = random.Random(0), list[Pair]()
    for _ in range(PASSES):
        order = dice.sample(captions, len(captions))
        while order:
            number = dice.randint(1, MOST)
            found.append(_one(order[:number]))
            del order[:number]
    return found


def _each_number(captions: Sequence[Pair]) -> list[Pair]:
    """As many pairs of each number as there are captions for, none in two of them, so that pairs say something each for themselves."""
    order, numbers = random.Random(1).sample(captions, len(captions)), range(1, MOST + 1)
    dealt = iter(order)
    return [_one([next(dealt) for _ in range(number)]) for number in numbers for _ in range(len(order) // sum(numbers))]


def _one(captions: Sequence[Pair]) -> Pair:
    return Pair(" ".join(pair.source for pair in captions), " ".join(pair.target for pair in captions))
