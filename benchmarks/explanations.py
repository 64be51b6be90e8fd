"""Precision of attributions: the numbers that point to the deciding words.

Models are trained on tasks with a known answer, and the precision of each method is measured at the truth's size.

    scripts/bench explanations --out FOLDER [--seeds 3] [--examples 75]

In dates, the steps that write the year's digits are decided by the year's characters in the source; in stories, the
answer is decided by one sentence, the supporting fact. For a step, a method ranks the characters of the source, or the
sentences of the story by the sums over their words; its precision at k is the share of the truth among the first k,
where k is the size of the truth, and chance is the truth's share of all ranked units. Only correct steps count. "Best
head" is the head, among those of all layers, that is best on an equal number of other examples with known truth.
Trained runs are kept in the folder and not trained again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import torch
from story_corpus import StoriesSettings, stories
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.runs.folder import MODEL
from attent.tasks.dates import DatesSettings, dates
from attent.tasks.recipe import follow
from attent.tasks.settings import RunSettings
from attent.tasks.translation.translator import Translator, load
from attent.text.tokenizer import BOS

DATES = {
    "locales": ("en", "fr", "de", "es"),
    "training_pairs": 20_000,
    "held_out_pairs": 400,
    "held_out_combinations": 4,
}
STORIES = {"kinds": ("one",), "training_stories": 20_000, "held_out_stories": 400, "longest": 8}
TRANSFORMER: dict[str, Any] = {
    "kind": "transformer",
    "encoder_layers": 2,
    "decoder_layers": 2,
    "width": 64,
    "feed_forward": 128,
    "heads": 4,
    "position": "rotary",
    "norm": "pre",
    "dropout": 0.0,
}
RNN: dict[str, Any] = {"kind": "rnn", "attention": "bahdanau", "embedding_width": 48, "width": 96}
TRAINING: dict[str, Any] = {
    "batch_pairs": 48,
    "learning_rate": 3e-3,
    "schedule": "cosine",
    "warmup": 60,
    "clip": 1.0,
    "label_smoothing": 0.0,
    "precision": "float32",
    "threads": 1,
    "device": "cpu",
}
UPDATES = {"dates": 800, "stories": 700}
BEST_HEAD = "best head"
METHODS = (
    "weights, last layer, mean over heads",
    BEST_HEAD,
    "norms",
    "gradient × weights, of the log-probability",
    "gradient × weights, of the logit",
    "rollout",
)


class Example(NamedTuple):
    """A text, its translation, and the truth.

    Args:
        source: the text.
        target: its translation.
        truth: the deciding units of the source, for each step of the translation that counts.
        units: the number of the unit of each source token, from 0; −1 if it belongs to none.
    """

    source: str
    target: str
    truth: dict[int, frozenset[int]]
    units: Sequence[int]


class Scores(NamedTuple):
    """The scores of a run: precision at k of each method, chance, and the share of correct steps."""

    precision: dict[str, float]
    chance: float
    right: float


def date_examples(seed: int) -> Iterator[Example]:
    """Yield dates not seen in training; the first four characters of a translation are the year."""
    corpus = dates(DatesSettings.model_validate({**DATES, "seed": seed}))
    for pair in corpus.held_out["held-out dates"]:
        truth = {step: frozenset(character for character, digit in pair.links if digit == step) for step in range(4)}
        yield Example(pair.source, pair.target, truth, range(len(pair.source)))


def story_examples(run: Translator) -> Iterator[Example]:
    """Yield stories of the test set, whose answer is one word.

    The words of the question are not ranked.
    """
    for story in stories(StoriesSettings.model_validate(STORIES)).test:
        units, sentence = [], 0
        for piece in run.source_tokenizer.pieces(story.text):
            units.append(sentence if sentence < len(story.sentences) else -1)
            sentence += piece.strip() == "."
        yield Example(story.text, story.answer, {0: frozenset(story.support)}, units)


def attributions(run: Translator, example: Example) -> tuple[dict[str, Tensor], list[int]]:
    """Return the numbers of each method and of every head, and the correct steps.

    The shapes are (steps, units), and (heads, steps, units) for heads.
    """
    source, target = run.source_tokenizer.encode(example.source), run.target_tokenizer.encode(example.target)
    rows = torch.tensor([*example.truth])
    with watch(run.model, gradients=True) as seen:
        features = run.model.decode(run.encode(source), torch.tensor([[BOS, *target]]))
        logits = run.model.output(features)[0]  # (T, V)
        log_probs = logits.log_softmax(-1)
    wanted = torch.tensor(target)[rows]
    right = [
        step for step, row in zip(example.truth, rows, strict=True) if int(log_probs[row].argmax()) == target[step]
    ]
    cross = [path for path in seen if path.endswith("cross_attention")]
    # a row of the last layer affects only its own step, so one backward pass serves all steps
    last = cross[-1]
    by_log_prob, by_logit = (
        seen.gradients(numbers[rows, wanted].sum())[last].rows(rows)[0].mean(0) for numbers in (log_probs, logits)
    )
    weights = seen[last].rows(rows)[0].mean(0)
    methods = {
        METHODS[0]: weights,
        "norms": seen.norms()[last].rows(rows)[0].mean(0),
        "gradient × weights, of the log-probability": by_log_prob,
        "gradient × weights, of the logit": by_logit,
        BEST_HEAD: torch.cat([seen[path].rows(rows)[0] for path in cross]),
    }
    if read := [path for path in seen if path.startswith("encoder.")]:
        methods["rollout"] = weights @ seen.rollout()[read[-1]].dense()[0, 0]
    units = torch.tensor(example.units)
    # (Tk, units), mapping each token to its unit
    sums = torch.nn.functional.one_hot(units.clamp(min=0), int(units.max()) + 1).float() * (units >= 0)[:, None]
    return {name: numbers.detach() @ sums for name, numbers in methods.items()}, right


def precision(numbers: Tensor, truth: frozenset[int]) -> float:
    """Return the share of the truth among the k largest of the numbers (units,), where k is the size of the truth."""
    return len(truth.intersection(numbers.topk(len(truth)).indices.tolist())) / len(truth)


def judge(run: Translator, examples: Iterable[Example], count: int) -> Scores:
    """Score every method on `count` examples, after choosing the best head on as many others."""
    by_method: dict[str, list[float]] = {}
    by_head: list[list[float]] = []
    chance, right, steps = [], 0, 0
    best = 0
    for number, example in zip(range(2 * count), examples, strict=False):
        methods, right_steps = attributions(run, example)
        heads = methods.pop(BEST_HEAD)
        if number == count:
            best = max(range(len(heads)), key=lambda head: fmean(row[head] for row in by_head))
        for index, (step, truth) in enumerate(example.truth.items()):
            if number >= count:
                steps += 1
                right += step in right_steps
            if step not in right_steps:
                continue
            if number < count:
                by_head.append([precision(head[index], truth) for head in heads])
                continue
            chance.append(len(truth) / heads.shape[-1])
            for name, numbers in (*methods.items(), (BEST_HEAD, heads[best])):
                by_method.setdefault(name, []).append(precision(numbers[index], truth))
    return Scores({name: fmean(values) for name, values in by_method.items()}, fmean(chance), right / steps)


def trained(task: str, seed: int, folder: Path) -> Translator:
    """Return the run of a task and a seed; train it if it does not exist."""
    path = folder / f"{task}-{seed}"
    if not (path / MODEL).exists():
        corpus: dict[str, Any] = {"dates": {**DATES, "seed": seed}}
        if task == "stories":
            stories(StoriesSettings.model_validate(STORIES)).write(folder / "stories", with_support=False)
            files = {name: str(folder / "stories" / f"{name}.tsv") for name in ("train", "valid")}
            corpus = {"text": {**files, "tokenizer": "word"}}
        training = {**TRAINING, "updates": UPDATES[task], "validate_every": UPDATES[task], "seed": seed}
        model = TRANSFORMER if task == "dates" else RNN
        follow(RunSettings.model_validate({**corpus, "model": model, "training": training}), path, replace=True)
    return load(path)


def table(rows: Sequence[tuple[str, Sequence[Scores]]]) -> str:
    """Return a table with methods in rows and tasks in columns: the mean over seeds ± the standard deviation."""
    lines = [f"| precision at k | {' | '.join(task for task, _ in rows)} |", f"|{'---|' * (len(rows) + 1)}"]
    for method in (*METHODS, "chance"):
        cells = []
        for _, scores in rows:
            values = [score.chance if method == "chance" else score.precision.get(method) for score in scores]
            cells.append("–" if None in values else f"{fmean(values):.3f} ± {pstdev(values):.3f}")  # pyright: ignore[reportArgumentType]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    right = " | ".join(", ".join(f"{score.right:.3f}" for score in scores) for _, scores in rows)
    return "\n".join([*lines, f"| steps that are right, by seed | {right} |"])


def main() -> None:
    """Train missing runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=75)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[str, list[Scores]]] = []
    for task in UPDATES:
        scores: list[Scores] = []
        for seed in range(1, options.seeds + 1):
            run = trained(task, seed, options.out)
            examples = date_examples(seed) if task == "dates" else story_examples(run)
            scores.append(judge(run, examples, options.examples))
            print(task, seed, scores[-1], flush=True)
        rows.append((task, scores))
    print(table(rows))


if __name__ == "__main__":
    main()
