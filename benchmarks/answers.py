"""Answer questions about generated stories with a span of the story, beside two baselines.

`configs/answers.toml` trains an encoder for each seed on the same stories (`examples/make_stories.py`);
the stories of the test contain a combination of a person with a place or a thing that training lacks. The baselines
answer with the place that the story mentions last, or most often, the later one of equals.

    scripts/bench answers --kinds one --seeds 3
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from _sides import head, table
from story_corpus import StoriesSettings, Story, stories

import attent
from attent.tasks.question_answering.task import answer_scores
from attent.tasks.recipe import follow
from attent.tasks.settings import RunSettings, read
from attent.training.progress import Progress

CONFIG = Path(__file__).parents[1] / "configs" / "answers.toml"


def write_lines(part: Sequence[Story], path: Path) -> None:
    """Write a passage, a question and an answer per line, separated by tabs."""
    lines = (f"{' '.join(story.sentences)}\t{story.question}\t{story.answer}\n" for story in part)
    path.write_text("".join(lines), encoding="utf-8", newline="")


def baselines(part: Sequence[Story], places: set[str]) -> dict[str, list[str]]:
    """Return the answers of each baseline."""
    mentions = [
        [word for word in " ".join(story.sentences).replace(".", "").split() if word in places] for story in part
    ]
    return {
        "the place mentioned last": [words[-1] for words in mentions],
        "the place mentioned most often": [max(reversed(words), key=Counter(words).__getitem__) for words in mentions],
    }


def exact_matches(part: Sequence[Story], answers: Sequence[str], kinds: Sequence[str]) -> dict[str, float]:
    """Return the exact match of each kind of question, in percent."""
    by_kind = {kind: [row for row, story in enumerate(part) if story.kind == kind] for kind in kinds}
    return {
        kind: answer_scores([answers[row] for row in rows], [part[row].answer for row in rows])["exact match"]
        for kind, rows in by_kind.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="one", help="kinds of questions, joined by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=None, help="updates; those of the recipe unless given")
    parser.add_argument("--stories", type=int, default=60_000)
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",")
    corpus = stories(StoriesSettings(kinds=tuple(kinds), training_stories=arguments.stories, held_out_stories=500))
    parts = {"valid": corpus.validation, "test": corpus.test}
    places = {story.answer for story in corpus.train}
    scores: dict[str, dict[str, list[float]]] = {}

    def add(name: str, part: str, answers: Sequence[str]) -> None:
        for kind, score in exact_matches(parts[part], answers, kinds).items():
            scores.setdefault(name, {}).setdefault(f"{kind}, {part}", []).append(score)

    for part, rows in parts.items():
        for name, answers in baselines(rows, places).items():
            add(name, part, answers)
    with tempfile.TemporaryDirectory() as folder:
        for part, rows in {"train": corpus.train, **parts}.items():
            write_lines(rows, Path(folder) / f"{part}-answers.tsv")
        for seed in range(arguments.seeds):
            started = time.process_time()
            run = Path(folder) / f"run{seed}"
            follow(_settings(Path(folder), seed, arguments.updates), run, progress=Progress())
            seconds = time.process_time() - started
            answerer = attent.load(run)
            for part, rows in parts.items():
                questions = [(" ".join(story.sentences), story.question) for story in rows]
                add("encoder", part, [answer.text for answer in answerer.answers(questions)])
            print(f"seed {seed}: {seconds:.0f} CPU seconds; {scores['encoder']}", flush=True)
    columns = list(next(iter(scores.values())))
    head("Answers as spans of a story, exact match in percent")
    table(
        ["", *columns],
        [[name, *(_cell(by_column[column]) for column in columns)] for name, by_column in scores.items()],
    )


def _settings(folder: Path, seed: int, updates: int | None) -> RunSettings:
    settings = read(CONFIG)
    files = {"train": "train", "valid": "valid", "test": "test"}
    labelled = {key: str(folder / f"{part}-answers.tsv") for key, part in files.items()}
    training = {"seed": seed} | ({} if updates is None else {"updates": updates})
    return settings.model_copy(
        update={
            "labelled": settings.labelled.model_copy(update=labelled),
            "training": settings.training.model_copy(update=training),
        }
    )


def _cell(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


if __name__ == "__main__":
    main()
