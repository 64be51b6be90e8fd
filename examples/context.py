"""Compare the vectors of a word in two uses, layer by layer, before and after context enters them.

    python examples/context.py [PICTURE.png]

A masked language model is trained on generated sentences in which *bank*, *date* and *bat* have two uses each. Then it
reads sentences that it was not trained on, and the vectors of each word are compared between sentences of the same use
and between sentences of different uses.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import combinations, product
from pathlib import Path
from random import Random
from statistics import mean

import torch

import attent
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.recipe import follow
from attent.tasks.settings import parse
from attent.views.palette import color

# Two uses of each word: who, does what, with what.
USES = {
    "bank": (
        (
            ("boat", "duck", "fisher", "heron"),
            ("rests near", "swims to", "drifts along"),
            ("river", "stream", "water", "reeds"),
        ),
        (
            ("clerk", "owner", "teller", "broker"),
            ("borrows from", "pays", "works in"),
            ("money", "loan", "account", "cash"),
        ),
    ),
    "date": (
        (("cook", "baker", "monkey", "trader"), ("eats", "peels", "sells"), ("fig", "palm", "sugar", "honey")),
        (
            ("judge", "guest", "printer", "speaker"),
            ("writes down", "forgets", "moves"),
            ("month", "letter", "meeting", "calendar"),
        ),
    ),
    "bat": (
        (("owl", "moth", "farmer", "cat"), ("hears", "hunts", "follows"), ("cave", "night", "wings", "barn")),
        (("batter", "player", "coach", "pitcher"), ("swings", "lifts", "breaks"), ("ball", "glove", "game", "helmet")),
    ),
}
LINES, UNSEEN = 4000, 4
SETTINGS = """
task = "fill-mask"

[lines]
train = "{folder}/sentences.txt"
valid = "{folder}/unseen.txt"
tokenizer = "word"

[model]
layers = 3
width = 64
feed_forward = 128
heads = 4
position = "rotary"
norm = "pre"
dropout = 0.0

[training]
updates = 600
batch_tokens = 1024
learning_rate = 3e-3
schedule = "cosine"
warmup = 60
label_smoothing = 0.0
precision = "float32"
seed = 1
"""


def sentences() -> tuple[list[str], dict[str, tuple[list[str], list[str]]]]:
    """Return lines to train on, and for each word some sentences of each use that are not among these lines."""
    draw = Random(0)
    every = {
        (word, use): [f"the {who} {does} the {word} with the {thing} ." for who, does, thing in product(*parts)]
        for word, uses in USES.items()
        for use, parts in enumerate(uses)
    }
    unseen = {key: draw.sample(lines, UNSEEN) for key, lines in every.items()}
    known = [line for key, lines in every.items() for line in lines if line not in unseen[key]]
    return draw.choices(known, k=LINES), {word: (unseen[word, 0], unseen[word, 1]) for word in USES}


def main() -> None:
    """Train, compare, and print the cosines for each layer."""
    lines, unseen = sentences()
    with tempfile.TemporaryDirectory() as folder:
        files = {
            "sentences.txt": lines,
            "unseen.txt": [line for uses in unseen.values() for of_use in uses for line in of_use],
        }
        for name, texts in files.items():
            (Path(folder) / name).write_text("".join(f"{line}\n" for line in texts), encoding="utf-8")
        follow(parse(SETTINGS.format(folder=folder), "settings"), Path(folder) / "run")
        run = attent.load(Path(folder) / "run")
    curves: dict[str, list[float]] = {}
    for word, uses in unseen.items():
        first, second = ([run.features(line, word) for line in of_use] for of_use in uses)  # each (layers + 1, E)
        same = [*combinations(first, 2), *combinations(second, 2)]
        for name, pairs in ((f"{word}, same use", same), (f"{word}, other use", [*product(first, second)])):
            cosines = torch.stack([torch.cosine_similarity(a, b, dim=-1) for a, b in pairs])
            curves[name] = cosines.mean(0).tolist()
    print(f"{'layer':16}", *(f"{layer:6}" for layer in range(len(curves["bank, same use"]))))
    for name, curve in curves.items():
        print(f"{name:16}", *(f"{value:6.2f}" for value in curve))
    print()
    for word, uses in unseen.items():
        for use, of_use in enumerate(uses):
            shares = [_context_share(run, line, word, USES[word][use]) for line in of_use]
            print(
                f"{word}, {USES[word][use][2][0]}: {mean(shares):.2f} of the first layer's attention on words of this "
                "use"
            )
    if len(sys.argv) > 1:
        _draw(curves, sys.argv[1])


def _context_share(run: FillMask, line: str, word: str, parts: tuple[tuple[str, ...], ...]) -> float:
    """Return the share of a word's first-layer attention (mean over heads) on the words that indicate its use."""
    with attent.watch(run.model) as maps:
        run.features(line)
    pieces, telling = line.split(), {piece for part in parts for text in part for piece in text.split()}
    weights = next(iter(maps.values()))[0, :, pieces.index(word)].mean(0)
    return sum(weight for piece, weight in zip(pieces, weights.tolist(), strict=True) if piece in telling)


def _draw(curves: dict[str, list[float]], path: str) -> None:
    from matplotlib.figure import Figure

    axes = (figure := Figure((6.0, 3.6), layout="constrained")).subplots()
    for number, (name, curve) in enumerate(curves.items()):
        word, other = divmod(number, 2)
        hue, dash = color(("query", "key", "value")[word]), "--" if other else "-"
        axes.plot(curve, color=hue, linestyle=dash, marker="sDo"[word], label=name)
    axes.set_xticks(range(len(curve)), ["embedding", *(f"layer {layer}" for layer in range(1, len(curve)))])
    axes.set_ylabel("cosine of the word's two vectors")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
