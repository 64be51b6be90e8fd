"""A corpus of two made-up languages with known links.

Each word has one counterpart or is copied, adjectives follow their nouns, and verbs come last.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

from attent.text.text import Link

KINDS = {"noun": 60, "adjective": 30, "verb": 30, "adverb": 20}
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
NAMES = (
    "Ana",
    "Ben",
    "Carla",
    "Dimitri",
    "Eva",
    "Farid",
    "Gita",
    "Hugo",
    "Ines",
    "Jana",
    "Karim",
    "Lena",
    "Marek",
    "Nora",
    "Otto",
    "Pia",
)
RECIPE = """
[text]
train = "train.tsv"
valid = "valid.tsv"
tokenizer = "word"

[model]
encoder_layers = 2
decoder_layers = 2
width = 64
feed_forward = 128
heads = 4
position = "rotary"
norm = "pre"
dropout = 0.0

[training]
minutes = 3
updates = 1500
batch_pairs = 64
learning_rate = 3e-3
schedule = "cosine"
warmup = 100
label_smoothing = 0.0
precision = "float32"
seed = 1
"""


class LinkedPair(NamedTuple):
    """A pair and the links between its words."""

    source: str
    target: str
    links: list[Link]


def lexicon() -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the words of each kind and the counterpart of each word."""
    random = Random(5)
    words = ["".join(random.sample(SYLLABLES, 2 + number % 2)) for number in range(2000)]
    words = list(dict.fromkeys(words))
    random.shuffle(words)
    pool = iter(words)
    kinds = {kind: [next(pool) for _ in range(count)] for kind, count in KINDS.items()}
    counterparts = {word: next(pool) for group in kinds.values() for word in group}
    counterparts |= {name: name for name in NAMES} | {"the": "lo", "and": "et", ".": "."}
    return kinds, counterparts


def pairs(count: int, seed: int) -> list[LinkedPair]:
    """Return pairs of sentences of 5 to 18 words, all different."""
    (kinds, counterparts), random = lexicon(), Random(seed)
    result: dict[str, LinkedPair] = {}

    def phrase() -> list[tuple[str, str]]:
        """Return the words of a noun phrase with their kinds.

        In the target, a noun precedes its adjective.
        """
        if random.random() < 0.25:
            return [(random.choice(NAMES), "name")]
        adjective = [(random.choice(kinds["adjective"]), "adjective")] if random.random() < 0.6 else []
        return [("the", "the"), *adjective, (random.choice(kinds["noun"]), "noun")]

    while len(result) < count:
        subject = [*phrase(), ("and", "and"), *phrase()] if random.random() < 0.3 else phrase()
        adverb = [(random.choice(kinds["adverb"]), "adverb")] if random.random() < 0.5 else []
        words = [*subject, (random.choice(kinds["verb"]), "verb"), *phrase(), *adverb, (".", "sign")]
        order = [index for index, (_, kind) in enumerate(words) if kind != "verb"]
        order[-1:-1] = [index for index, (_, kind) in enumerate(words) if kind == "verb"]
        for index, (_, kind) in enumerate(words):
            if kind == "adjective":
                place = order.index(index)
                order[place : place + 2] = order[place + 1], order[place]
        source, target = (
            " ".join(text) for text in ((word for word, _ in words), (counterparts[words[index][0]] for index in order))
        )
        result[source] = LinkedPair(source, target, [(index, number) for number, index in enumerate(order)])
    return list(result.values())


def write(folder: Path) -> list[LinkedPair]:
    """Write a recipe and its files; return further pairs that are in neither file."""
    everything = pairs(24_000, 1)
    for name, part in (("train", everything[:22_000]), ("valid", everything[22_000:22_500])):
        (folder / f"{name}.tsv").write_text(
            "".join(f"{pair.source}\t{pair.target}\n" for pair in part), encoding="utf-8"
        )
    gold = "".join(
        " ".join(f"{source}-{target}" for source, target in pair.links) + "\n" for pair in everything[22_000:22_500]
    )
    (folder / "valid.links").write_text(gold, encoding="utf-8")
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    return everything[22_500:]
