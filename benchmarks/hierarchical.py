"""Compare an encoder of sentences and words with an encoder of words: answers about stories, by their length.

    scripts/bench hierarchical [--out runs/hierarchical] [--models …] [--seeds 1 2 3] [--updates N]

Five RNNs answer questions about stories (docs/stories.md): with a fixed vector or Bahdanau's attention, over words or
over sentences. They have the same number of parameters within 10 %, read the same stories of 6 to 24 sentences in the
same order, and are tested on new stories of several lengths, also longer ones. A training takes about a minute of the
processor, is done once, and is resumed after an interruption, so models and seeds can be trained in separate commands;
the last command prints the tables of all that it names, and writes them to OUT with a figure.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from _report import Column, Report, ResultTable, machine_info
from _sides import show
from comparison import trainings
from comparison.results import EXACT_MATCH, RESAMPLES, Estimate, Figure, ModelComparison, Point, Series, estimate
from comparison.trainings import TrainingPlan
from story_corpus import Story
from story_corpus.world import ask, simulate

from attent.devices import limit_threads
from attent.runs.durable import write_text
from attent.tasks.settings import RunSettings
from attent.text.tokenizer import WordTokenizer, sentence_ends

# With two layers of the encoder, a model of words has as many parameters as one of words and sentences.
WORDS = {"kind": "rnn", "embedding_width": 64, "width": 128, "encoder_layers": 2, "share_embeddings": "none"}
SENTENCES = WORDS | {"encoder_layers": 1, "sentences": "vectors"}
MODELS: dict[str, dict[str, Any]] = {
    "words, fixed vector": WORDS | {"attention": "none"},
    "words, attention": WORDS | {"attention": "bahdanau"},
    "sentences, fixed vector": SENTENCES | {"attention": "none"},
    "sentences, attention": SENTENCES | {"attention": "bahdanau"},
    # the memory has features of words and of sentences
    "sentences and words, attention": SENTENCES | {"attention": "bahdanau", "sentences": "words", "encoder_width": 48},
}
# Training and validation stories, and their numbers of sentences.
COUNTS, TRAINED_LENGTHS = {"train": 26_000, "valid": 300}, (6, 24)
# Sentences in a test story, and test stories of each length.
LENGTHS, TESTED = (8, 16, 24, 32, 48, 64), 300
UPDATES = 800


def draw_stories(purpose: str, count: int, shortest: int, longest: int) -> list[Story]:
    """Draw stories of a random number of sentences that ask where a person is; always the same ones."""
    rng, drawn = Random(f"{purpose}, {shortest} to {longest} sentences"), list[Story]()
    while len(drawn) < count:
        world = simulate(rng.random, rng.randint(shortest, longest))
        if question := ask("one", world, rng.random):
            sentences, support = tuple(world.sentences), tuple(sorted(question.support))
            drawn.append(Story("one", sentences, question.text, question.answer, support))
    return drawn


def write_stories(folder: Path) -> tuple[dict[str, str], dict[int, list[Story]]]:
    """Write stories to train on, and return their files and the test stories of each length, which are different."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {part: draw_stories(part, count, *TRAINED_LENGTHS) for part, count in COUNTS.items()}
    files = {part: str((folder / f"{part}.tsv").resolve()) for part in drawn}
    for part, of_part in drawn.items():
        write_text(Path(files[part]), "".join(f"{story.text}\t{story.answer}\n" for story in of_part))
    known = {story.text for of_part in drawn.values() for story in of_part}
    tests = {length: draw_stories("test", TESTED, length, length) for length in LENGTHS}
    return files, {length: [story for story in test if story.text not in known] for length, test in tests.items()}


def plan(name: str, seed: int, files: dict[str, str], updates: int) -> TrainingPlan:
    """Return the training of a model."""
    model = dict(MODELS[name])
    if "sentences" in model:
        sources = (line.split("\t")[0] for line in Path(files["train"]).read_text("utf-8").splitlines())
        model["sentence_ends"] = sentence_ends(WordTokenizer.learn(sources))
    training = {
        "updates": updates,
        "batch_pairs": 32,
        "learning_rate": 3e-3,
        "schedule": "cosine",
        "warmup": 100,
        "clip": 1.0,
        "label_smoothing": 0.0,
        "precision": "float32",
        "validate_every": 400,
        "save_every": 250,
        "seed": seed,
        "threads": 1,
        "device": "cpu",
    }
    text = {**files, "tokenizer": "word"}
    settings = RunSettings.model_validate({"task": "translate", "text": text, "model": model, "training": training})
    return TrainingPlan(f"{name.replace(', ', '-').replace(' ', '-')}-{seed}", settings)


def accuracy(plans: Sequence[TrainingPlan], tests: dict[int, list[Story]], out: Path) -> dict[int, Estimate]:
    """Return the percentage of right answers by length, with its interval."""
    estimates = {}
    for length, asked in tests.items():
        sources, answers = [story.text for story in asked], [story.answer for story in asked]
        texts = [trainings.translate(each, out, f"test {length}", sources).texts for each in plans]
        estimates[length] = estimate(EXACT_MATCH, [EXACT_MATCH.statistics(by_seed, answers) for by_seed in texts])
    return estimates


def compare(out: Path, models: Sequence[str], seeds: Sequence[int], updates: int) -> ModelComparison:
    """Train the models, and return the percentage of right answers by length."""
    trainings.claim(out, "hierarchical")
    files, tests = write_stories(out / "stories")
    plans = {name: [plan(name, seed, files, updates) for seed in seeds] for name in models}
    trainings.train([each for by_seed in plans.values() for each in by_seed], out)
    rows, series = [], []
    for name, by_seed in plans.items():
        estimates = accuracy(by_seed, tests, out)
        outcomes = [trainings.outcome(each, out) for each in by_seed]
        row = {"model": name, "parameters": outcomes[0].parameters}
        rows.append(row | {str(length): str(each) for length, each in estimates.items()})
        series.append(Series(name, [Point(length, *each) for length, each in estimates.items()]))
    columns = [Column("model", "model"), Column("parameters", "parameters", ",.0f")]
    columns += [Column(str(length), f"{length} sentences") for length in tests]
    table = ResultTable("Right answers, % [95 %] (seeds)", columns, rows)
    shortest, longest = TRAINED_LENGTHS
    title = f"Mean of {len(seeds)} seeds with 95 % intervals; trained on stories of {shortest} to {longest} sentences"
    figure = Figure("hierarchical", title, "sentences in the story", "right answers, %", series, log_x=True)
    note = (
        f"{updates:,} updates of 32 stories each, seeds {', '.join(map(str, seeds))}; {TESTED} questions of each "
        f"length. An interval holds 95 % of {RESAMPLES:,} resamples of the questions."
    )
    report = Report("Answers by an encoder of sentences", machine_info(), [table], [note])
    return ModelComparison("hierarchical", report, [figure])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/hierarchical"))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--updates", type=int, default=UPDATES, help="of each training")
    options = parser.parse_args()
    with limit_threads(1):
        comparison = compare(options.out, options.models, options.seeds, options.updates)
    command = shlex.join(["scripts/bench", "hierarchical", *sys.argv[1:]])
    comparison = replace(comparison, report=replace(comparison.report, command=command))
    comparison.write(options.out)
    show(comparison.report)


if __name__ == "__main__":
    main()
