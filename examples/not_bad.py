"""Show how a classifier learns that *not too bad* is good, by combining two words.

    python examples/not_bad.py

A classifier is trained on generated reviews in which *not* reverses the meaning of what follows. Then the embeddings of
*not* and *bad* are compared, and their q·k in the head that links them most: thanks to W_Q and W_K, words that belong
together do not need similar embeddings.
"""

from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path
from random import Random

import torch

import attent
from attent.tasks.recipe import follow
from attent.tasks.settings import parse

THINGS = ("pizza", "soup", "hotel", "film", "song", "book", "train", "garden", "coffee", "phone")
STARTS, ADVERBS = ("this {} is", "the {} was", "i found the {}"), ("", "too", "so", "very", "all that")
GOOD, BAD = ("good", "nice", "great", "tasty"), ("bad", "awful", "poor", "dull")
ENDS = ("", "today", "for the price", "and we went twice")
# Not trained on: all reviews of a pizza that is not too bad, or too bad.
ASKED = ("this pizza is too bad", "this pizza is not too bad", "this pizza is too good", "this pizza is not too good")
LINES = 900
SETTINGS = """
task = "classify"

[labelled]
train = "{folder}/reviews.tsv"
tokenizer = "word"

[model]
layers = 2
width = 32
feed_forward = 64
heads = 2
position = "learned"
norm = "pre"
dropout = 0.0
output_bias = true

[training]
updates = 300
batch_pairs = 32
learning_rate = 3e-3
schedule = "cosine"
warmup = 30
label_smoothing = 0.0
precision = "float32"
seed = 1
"""


def reviews() -> list[str]:
    """Return lines with a text, a tab and a label."""
    lines: list[str] = []
    for thing, start, negation, adverb, quality, end in product(
        THINGS, STARTS, ("", "not"), ADVERBS, (*GOOD, *BAD), ENDS
    ):
        if thing == "pizza" and adverb == "too":
            continue
        label = "positive" if (quality in GOOD) is not bool(negation) else "negative"
        lines.append(" ".join(filter(None, (start.format(thing), negation, adverb, quality, end))) + f"\t{label}")
    return Random(0).sample(lines, LINES)


def main() -> None:
    """Train, classify, and print similarities."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "reviews.tsv").write_text("".join(f"{line}\n" for line in reviews()), encoding="utf-8")
        follow(parse(SETTINGS.format(folder=folder), "settings"), Path(folder) / "run")
        run = attent.load(Path(folder) / "run")
    for text, result in zip(ASKED, run.classify([*ASKED]), strict=True):
        print(f"{text:27}  {result.label} {result.probabilities[0]:.2f}")

    words = run.tokenizer.pieces(text := ASKED[1])
    not_, bad = words.index(" not"), words.index(" bad")
    embeddings = run.model.embedding(torch.tensor([run.tokenizer.encode(text)]))[0]
    cosines = torch.cosine_similarity(embeddings[bad], embeddings, dim=-1).tolist()
    others = [cosine for index, cosine in enumerate(cosines) if index not in (bad, not_)]
    print(
        f"\ncosine of the embeddings of bad and not {cosines[not_]:+.2f}, of bad and the other words "
        f"{sum(others) / len(others):+.2f}"
    )

    # the class vector comes first; choose the head in which bad attends most to not
    maps = run.maps([text])
    heads = [(name, head) for name, layer in maps.items() for head in range(layer.shape[1])]
    name, head = max(heads, key=lambda at: maps[at[0]][0, at[1], 1 + bad, 1 + not_].item())
    weight = maps[name][0, head, 1 + bad, 1 + not_].item()
    scores = maps[name].scores()[0, head, 1 + bad]
    rest = [score for index, score in enumerate(scores.tolist()) if index != 1 + not_]
    print(f"{name}, head {head}: bad gives not {weight:.2f} of its attention")
    print(f"q·k/√d of bad and not {scores[1 + not_]:+.2f}, of bad and the others {sum(rest) / len(rest):+.2f}")


if __name__ == "__main__":
    main()
