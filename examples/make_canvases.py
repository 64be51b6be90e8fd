"""Make a corpus of canvases: pictures of one to four of scikit-learn's digits, with captions.

    python examples/make_canvases.py --out data/canvases

Writes train.tsv, valid.tsv, test.tsv and combinations.tsv. The images of digits in valid and test are not in train. In
combinations, digits are together that are so nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from corpus_options import CorpusOptions

from attent.errors import ArgumentError, AttentError, needs
from attent.tasks.classification.pictures import load_digits
from attent.text.corpus import split_by_class

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
POSITIONS = ("upper left", "upper right", "lower left", "lower right")
# Digits that stand on one canvas only in combinations, where each canvas has such a pair.
HELD_OUT_PAIRS = ((0, 5), (1, 6), (2, 7), (3, 8), (4, 9))
# The shares of scikit-learn's digits from which the canvases of test and combinations, and of valid are made.
TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1
# Pixels (16, 16), and the caption.
Canvas = tuple[np.ndarray, str]


def canvases(pictures: int, held_out: int, seed: int = 0) -> dict[str, list[Canvas]]:
    """Draw the canvases of train, valid, test and combinations.

    No image of a digit is in two parts, except in test and combinations. A caption names digits and positions in
    reading order: "seven upper left , two lower right".

    Args:
        pictures: the number of canvases to train on.
        held_out: the number of canvases of each other part.
        seed: seed of the split of the digits and of the canvases.

    Raises:
        AttentError: scikit-learn is not installed.
    """
    digits = load_digits()
    assert digits.classes is not None
    rest, test = split_by_class(digits.classes, TEST_SHARE, seed)
    train, validation = (rest[part] for part in split_by_class(digits.classes[rest], VALIDATION_SHARE, seed))
    parts: dict[str, list[Canvas]] = {part: [] for part in ("train", "valid", "test", "combinations")}
    for number, (part, rows) in enumerate(zip(parts, (train, validation, test, test), strict=True)):
        generator, count = np.random.default_rng((seed, number)), held_out if number else pictures
        while len(parts[part]) < count:
            positions = np.sort(
                generator.permutation(len(POSITIONS))[: generator.integers(1, len(POSITIONS), endpoint=True)]
            )
            chosen = rows[generator.integers(len(rows), size=len(positions))]
            classes = digits.classes[chosen]
            if any({*pair} <= {*classes.tolist()} for pair in HELD_OUT_PAIRS) is (part == "combinations"):
                named = [
                    f"{NAMES[digit]} {POSITIONS[position]}" for digit, position in zip(classes, positions, strict=True)
                ]
                cells = np.zeros((len(POSITIONS), 8, 8), np.uint8)
                cells[positions] = np.rint(digits.pixels[chosen, ..., 0] * 255)
                parts[part].append((np.block([[*cells[:2]], [*cells[2:]]]), " , ".join(named)))
    return parts


def write_canvases(folder: Path, parts: dict[str, list[Canvas]]) -> None:
    """Write the canvases as PNG, and for each part a .tsv of lines with picture, tab and caption.

    Raises:
        ArgumentError: the folder cannot be written.
        AttentError: Pillow is not installed.
    """
    with needs("pictures need Pillow", "images"):
        from PIL import Image
    try:
        (folder / "pictures").mkdir(parents=True, exist_ok=True)
        for part, drawn in parts.items():
            names = [f"pictures/{part}-{number:05}.png" for number in range(1, len(drawn) + 1)]
            for name, (pixels, _) in zip(names, drawn, strict=True):
                Image.fromarray(pixels).save(folder / name)
            lines = "".join(f"{name}\t{caption}\n" for name, (_, caption) in zip(names, drawn, strict=True))
            (folder / f"{part}.tsv").write_text(lines, encoding="utf-8", newline="")
    except OSError as error:
        raise ArgumentError(f"{folder} cannot be written: {error.strerror or error}") from error


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the corpus, and print its sizes."""
    parser = CorpusOptions(__doc__)
    parser.add_count("--pictures", 8_000, "number of pictures to train on")
    parser.add_count("--held-out", 500, "number of pictures of each held-out part")
    options = parser.parse_args(arguments)
    try:
        parts = canvases(options.pictures, options.held_out, options.seed)
        write_canvases(options.out, parts)
    except AttentError as error:
        parser.error(str(error))
    print(f"{', '.join(f'{len(drawn):,} pictures of {part}' for part, drawn in parts.items())}, in {options.out}")


if __name__ == "__main__":
    main()
